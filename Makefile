# Every target makes the virtual environment it needs; a second call finds it and is fast.
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(firstword $(foreach name,python3 python3.11 python3.12 python3.13,\
  $(shell $(name) -c 'import sys; print("$(name)" if sys.version_info >= (3, 11) else "")' 2>/dev/null)))
SOURCES := q35chat export tools tests
# A worker that is done takes tests from another: no long file keeps the others waiting. Many tests
# wait for a screen, so three workers fill two cores.
PYTEST := $(BIN)/python -m pytest --dist worksteal

.PHONY: chat test test-parity test-tmux screens check format goldens clean

chat: $(VENV)/ready-base ## Chat with the demo model, or with the bundle in out/
	@$(BIN)/q35chat $(ARGS)

test: $(VENV)/ready-dev ## Tests without PyTorch, against golden files
	$(PYTEST) -n 3 -m "not parity and not tmux" $(ARGS)

test-parity: $(VENV)/ready-parity ## Live comparison with transformers' PyTorch model
	$(PYTEST) -n 2 -m parity $(ARGS)

test-tmux: $(VENV)/ready-dev ## The whole program in a real terminal; needs tmux
	@command -v tmux >/dev/null || { echo "install tmux to run these tests" >&2; exit 1; }
	$(PYTEST) -n 2 -m tmux tests/tui $(ARGS)

screens: $(VENV)/ready-dev ## Write the stored screens again; read the diff afterwards
	REWRITE_SCREENS=1 $(PYTEST) -n 2 tests/tui/test_screens.py $(ARGS)

goldens: $(VENV)/ready-parity ## Write the golden files again from transformers
	$(BIN)/python -m tests.parity.rewrite_goldens $(ARGS)

check: $(VENV)/ready-dev ## Format, lint, types
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy

format: $(VENV)/ready-dev ## Rewrite the sources in the house format
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache

$(VENV)/pyvenv.cfg:
	@test -n "$(PYTHON)" || { echo "q35chat needs Python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/ready-base: EXTRAS :=
$(VENV)/ready-dev: EXTRAS := [dev]
$(VENV)/ready-parity: EXTRAS := [dev,parity]
$(VENV)/ready-%: pyproject.toml | $(VENV)/pyvenv.cfg
	@echo 'installing q35chat$(EXTRAS) into $(VENV), a minute or two ...'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.$(EXTRAS)'
	@touch $@
