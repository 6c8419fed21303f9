"""Every command in README.md works as it is written there.

Each line that starts with "$ " in a ```console block is run by a shell, in a folder with a small
random checkpoint in place of the published one, a bundle in `out` and `out-zh`, and the pictures of
a clone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import typer.main

from q35chat.chat.events import FinishReason, PromptPlan, Timings, Usage
from q35chat.chat.turn.generate import check_fit
from q35chat.cli import app
from q35chat.errors import CapacityError
from q35chat.tui.chat.meter import Capacity, Reading
from q35chat.tui.text import usage_items
from q35chat.tui.widgets import meters
from tests.support.checkpoints import make_checkpoint
from tests.support.exported import export_bundle
from tests.support.imports import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
HUB_ID = "Qwen/Qwen3.5-0.8B"
LOCAL = "./Qwen3.5-0.8B"

# What cannot be run here as it is written, why, and what is run in its place.
REPLACED: dict[str, tuple[str, str]] = {
    "make chat": ("installs from the network", f"make -n -C {ROOT} chat"),
    "make test": ("installs from the network", f"make -n -C {ROOT} test"),
    "python3 -m pip install .": ("installs from the network", "python3 -m pip install --help"),
    "q35chat": ("needs a terminal", "q35chat --help"),
    "q35chat --endpoint http://host:8000/v1 --model qwen3.5": (
        "needs a server",
        "q35chat --endpoint http://host:8000/v1 --model qwen3.5 --help",
    ),
    "q35chat serve": ("serves until it is stopped", "q35chat serve --help"),
    "q35chat --model-dir out": ("needs a terminal", "q35chat --model-dir out --help"),
    **{
        f"q35chat export {HUB_ID} --source modelscope --out {out}": (
            "needs a hub",
            f"q35chat export {LOCAL} --out {out}",
        )
        for out in ("out-modelscope", "out-zh")
    },
    'q35chat ask --template explain --max-new-tokens 60 "a KV cache"': (
        "needs a template",
        (
            "mkdir -p config/q35chat/templates && "
            "echo 'Explain $input to a child.' > config/q35chat/templates/explain.md && "
            'q35chat ask --template explain --max-new-tokens 9 "a KV cache"'
        ),
    ),
    f"q35chat verify out --against {HUB_ID}": (
        "needs the extra with PyTorch",
        f"q35chat verify out --against {LOCAL} --help",
    ),
}

# The shell's q35chat: this interpreter's, which cannot see PyTorch, as in the base install.
SCRIPT = """#!/bin/sh
exec '{python}' -c "import sys; sys.modules['torch'] = None
from q35chat.cli import main; main()" "$@"
"""


def commands() -> list[str]:
    blocks = re.findall(r"^```console\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert all(line.startswith("$ ") for line in lines)
    return [line.removeprefix("$ ") for line in lines]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    make_checkpoint(folder / "Qwen3.5-0.8B")
    shutil.copytree(ROOT / "assets" / "pictures", folder / "assets" / "pictures")
    tools = folder / "bin"
    tools.mkdir()
    (tools / "q35chat").write_text(SCRIPT.format(python=sys.executable), encoding="utf-8")
    (tools / "q35chat").chmod(0o755)
    (tools / "python3").symlink_to(sys.executable)
    return folder


@pytest.fixture(scope="module")
def bundle(folder: Path) -> Path:
    return export_bundle(folder / LOCAL, folder / "bundle", precision="fp32", max_seq_len=512)


@pytest.fixture
def place(folder: Path, bundle: Path, request: pytest.FixtureRequest) -> Path:
    """The folder as the README's reader has it: fresh bundles unless the command makes them."""
    making = " export " in f" {request.getfixturevalue('command')} "
    for name in ("out", "out-zh"):
        shutil.rmtree(folder / name, ignore_errors=True)
        if not making:
            shutil.copytree(bundle, folder / name)
    return folder


def run(command: str, place: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "export")]),
        "XDG_CACHE_HOME": str(place / "cache"),
        "XDG_CONFIG_HOME": str(place / "config"),
        "XDG_DATA_HOME": str(place / "data"),
    }
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=place,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize("command", commands())
def test_every_command_works(command: str, place: Path) -> None:
    _, instead = REPLACED.get(command, ("", command))
    result = run(instead.replace(HUB_ID, LOCAL), place)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["q35chat ask --max-new-tokens 1 Hello"])
def test_nothing_but_our_own_files_is_left_in_the_users_folders(command: str, place: Path) -> None:
    result = run(command, place)
    assert result.returncode == 0, result.stderr
    assert list((place / "cache").glob("*")) == []


@pytest.mark.parametrize("command", [f"q35chat verify out --against {LOCAL}"])
def test_verify_without_torch_says_in_one_line_how_to_install_it(command: str, place: Path) -> None:
    result = run(command, place)
    assert result.returncode == 1
    assert "-m pip install torch" in result.stderr
    assert result.stderr.count("\n") == 1


def test_what_is_replaced_is_in_the_readme() -> None:
    assert set(REPLACED) <= set(commands())


def test_every_option_that_is_named_exists() -> None:
    root = typer.main.get_command(app)
    parts = [root, *(root.get_command(None, name) for name in root.commands)]  # type: ignore[attr-defined]
    known = {
        name
        for part in parts
        for parameter in part.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README))
    assert named - known - {"--help"} == set()


def test_every_reason_for_an_end_is_named() -> None:
    (row,) = re.findall(r"^\| `finish_reason` \|.*$", README, re.MULTILINE)
    assert set(get_args(FinishReason)) <= set(re.findall(r"`(\w+)`", row))


def test_every_word_of_the_meters_and_under_an_answer_is_explained() -> None:
    timings = Timings(first_token_ms=9.0, wall_ms=(2.0,), route="prefill")
    usage = Usage(
        prompt_tokens=9, reused_tokens=5, image_tokens=0, reasoning_tokens=0,
        completion_tokens=2, capacity_total=100, capacity_used=10, timings=timings,
    )  # fmt: skip
    reading = Reading(Capacity(100, 10, 20), steps=(2.0,), p50=2.0, p95=2.0, predict=1.0, wall=2.0,
                      details=True)  # fmt: skip
    over = Reading(Capacity(100, 90, 20))
    shown = [
        *usage_items(usage),
        *map(str, map(meters.capacity_legend, (reading, over))),
        str(meters.step_legend(reading)),
    ]
    words = set(re.findall(r"[a-z]+/?[a-z0-9]+", " ".join(shown))) - {"prefill"}
    assert {"used", "over", "p95", "host", "reused", "tok/s", "ms/step"} <= words
    chat = README.partition("\n## Chat\n")[2].partition("\n## ")[0]
    assert words - set(re.findall(r"[a-z]+/?[a-z0-9]+", chat)) == set()


def test_a_prompt_that_does_not_fit_is_refused_with_the_words_that_are_shown() -> None:
    plan = PromptPlan(prompt_tokens=2310, reused_tokens=0, image_tokens=1024, capacity=2048)
    with pytest.raises(CapacityError) as refused:
        check_fit(plan)
    (shown,) = re.findall(r"`(prompt needs \d[^`]*)`", README)
    assert str(refused.value).startswith(shown)


def test_the_chat_without_its_name_takes_every_option_of_chat() -> None:
    root = typer.main.get_command(app)
    chat = root.get_command(None, "chat")  # type: ignore[attr-defined]
    bare = {name for parameter in root.params for name in parameter.opts}
    assert {name for parameter in chat.params for name in parameter.opts} <= bare
