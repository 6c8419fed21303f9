from __future__ import annotations

import json
from dataclasses import replace
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from q35chat.chat.events import Event
from q35chat.chat.values import SamplingSettings
from q35chat.commands.ask import AskOptions, SamplingOptions, ask_once
from q35chat.commands.model import LoadedModel, ModelChoice
from q35chat.commands.options import DEFAULT_STATE_CACHE_MIB
from q35chat.errors import CapacityError, FileError, PictureError, UsageError
from tests.cli.scripted import (
    EventBackend,
    Recorded,
    finished,
    loaded,
    recorded,
    token,
    turn_events,
)
from tests.vision.files import sample


def hello(**options: Any) -> AskOptions:
    return replace(AskOptions("Hello", model_dir=Path("model")), **options)


def ask(
    backend: EventBackend, defaults: SamplingSettings | None = None, **options: Any
) -> tuple[int, Recorded]:
    seen = recorded()
    load = lambda choice, threads: loaded(backend, defaults)  # noqa: E731
    code = ask_once(hello(**options), seen.console, load)
    return code, seen


def test_the_answer_is_printed_and_the_exit_code_is_zero() -> None:
    code, seen = ask(EventBackend(turn_events("Hi")))
    assert (code, seen.out.getvalue(), seen.err.getvalue()) == (0, "Hi\n", "")


def test_json_replaces_the_stream() -> None:
    _, seen = ask(EventBackend(turn_events("Hi", reasoning=["hm"])), as_json=True)
    assert json.loads(seen.out.getvalue())["text"] == "Hi"
    assert seen.err.getvalue() == ""


def test_stats_go_to_stderr() -> None:
    _, seen = ask(EventBackend(turn_events("Hi")), stats=True)
    assert seen.out.getvalue() == "Hi\n"
    assert "capacity  104 of 2,048 slots used" in seen.err.getvalue()


def test_a_cancelled_answer_exits_130() -> None:
    events: list[Event] = [token("Hi"), finished("Hi", reason="cancelled")]
    code, seen = ask(EventBackend(events))
    assert (code, seen.out.getvalue()) == (130, "Hi\n")


def test_options_win_over_settings_file_and_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "config" / "q35chat"
    folder.mkdir(parents=True)
    (folder / "settings.toml").write_text("thinking = true\nmax_image_tokens = 99\n")
    backend = EventBackend(turn_events("Hi"))
    defaults = SamplingSettings(temperature=0.6, top_k=20)
    ask(backend, defaults)
    ask(
        backend,
        defaults,
        thinking=False,
        max_image_tokens=7,
        system="Be brief.",
        max_new_tokens=5,
        stop=["END"],
        sampling=SamplingOptions(top_k=3, seed=4),
    )
    (_, first), (_, second) = backend.asked
    assert (first.thinking, first.max_image_tokens, first.sampling) == (True, 99, defaults)
    assert (second.thinking, second.max_image_tokens) == (False, 7)
    assert (second.system_prompt, second.max_new_tokens, second.stop) == ("Be brief.", 5, ("END",))
    assert second.sampling == SamplingSettings(temperature=0.6, top_k=3, seed=4)


def test_pictures_keep_their_order(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("b.png", "a.png")]
    for path in paths:
        path.write_bytes(sample("PNG"))
    backend = EventBackend(turn_events("Hi"))
    ask(backend, images=paths)
    (turn,) = backend.asked[0][0]
    assert [picture.name for picture in turn.attachments] == ["b.png", "a.png"]
    assert turn.text == "Hello"


def piped(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """Have stdin hold `data`."""
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(data)))


def test_a_picture_is_read_from_stdin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "b.png"
    other.write_bytes(sample("PNG"))
    piped(monkeypatch, sample("PNG"))
    backend = EventBackend(turn_events("Hi"))
    ask(backend, images=[Path("-"), other])
    (turn,) = backend.asked[0][0]
    assert [picture.name for picture in turn.attachments] == ["stdin", "b.png"]
    assert turn.text == "Hello"


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        (b"", {"images": [Path("-")]}, "stdin is empty"),
        (b"text", {"images": [Path("-")]}, "stdin is not a picture"),
        (b"", {"images": [Path("-")] * 2}, "stdin holds one picture"),
        (b"", {"images": [Path("-")], "prompt": None}, "add the question"),
        (b"", {"images": [Path("-")], "prompt": "-"}, "add the question"),
    ],
)
def test_what_cannot_be_a_picture_on_stdin_is_refused(
    monkeypatch: pytest.MonkeyPatch, data: bytes, options: dict[str, Any], words: str
) -> None:
    piped(monkeypatch, data)
    with pytest.raises((UsageError, PictureError), match=words):
        ask_once(hello(**options), recorded().console, _never)


def _never(_: ModelChoice, __: int | None) -> LoadedModel:
    raise AssertionError("the model was loaded")


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"prompt": " "}, UsageError, "the prompt is empty"),
        ({"images": [Path("no.png")]}, PictureError, "no.png does not exist"),
        ({"images": [Path()]}, PictureError, "is a folder"),
        ({"sampling": SamplingOptions(greedy=True, top_k=1)}, UsageError, "drop --top-k"),
    ],
)
def test_bad_input_is_refused_before_the_model_is_loaded(
    options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        ask_once(hello(**options), recorded().console, _never)


def test_a_prompt_over_the_capacity_is_an_error_and_prints_nothing() -> None:
    backend = EventBackend(error=CapacityError("prompt needs 2310 slots"))
    with pytest.raises(CapacityError, match="2310 slots"):
        ask(backend)


def test_the_chosen_model_and_threads_reach_the_loader() -> None:
    seen: list[tuple[ModelChoice, int | None]] = []

    def load(choice: ModelChoice, threads: int | None) -> LoadedModel:
        seen.append((choice, threads))
        return loaded(EventBackend(turn_events("Hi")))

    ask_once(AskOptions("Hello", model_dir=Path("m"), threads=3), recorded().console, load)
    assert seen == [(ModelChoice(Path("m"), state_cache_mib=DEFAULT_STATE_CACHE_MIB), 3)]


DEFAULTS = SamplingSettings(temperature=0.7, top_k=20, top_p=0.8)


def test_sampling_options_win_over_the_checkpoints_own_one_by_one() -> None:
    assert SamplingOptions().over(DEFAULTS) == DEFAULTS
    assert SamplingOptions(greedy=True).over(DEFAULTS) == replace(DEFAULTS, temperature=0.0)
    assert SamplingOptions(top_k=5, seed=1).over(DEFAULTS) == replace(DEFAULTS, top_k=5, seed=1)


@pytest.mark.parametrize("greedy", [{"greedy": True}, {"temperature": 0.0}])
@pytest.mark.parametrize("name", ["top_p", "top_k", "min_p"])
def test_greedy_with_an_option_it_would_ignore_is_refused(
    name: str, greedy: dict[str, Any]
) -> None:
    said = f"--{'greedy' if 'greedy' in greedy else 'temperature 0'} always .*; drop --{name[:3]}-."
    with pytest.raises(UsageError, match=said):
        replace(SamplingOptions(**greedy), **{name: 0.5}).check()  # type: ignore[arg-type]


def test_greedy_with_a_temperature_is_refused() -> None:
    with pytest.raises(UsageError, match="--greedy always takes the likeliest token; drop --temp"):
        SamplingOptions(greedy=True, temperature=0.5).check()


def test_the_text_of_files_comes_before_the_question(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("x = 1\n", "utf-8")
    backend = EventBackend(turn_events("Hi"))
    code, _ = ask(backend, files=[path])
    assert code == 0
    assert backend.asked[0][0][-1].text == "File `a.py`:\n\n```python\nx = 1\n```\n\nHello"
    with pytest.raises(FileError, match="is a folder"):
        ask(EventBackend(), files=[tmp_path])
