"""The command line over a real bundle of a small random model."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from q35chat.bundle.bundle import MANIFEST_NAME
from q35chat.cli import run
from q35chat.text import safe_text
from tests.support.exported import random_bundle
from tests.vision.files import encoded, noise, png_claiming

CAPACITY = 128


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_bundle(tmp_path_factory, precision="fp32", max_seq_len=CAPACITY)


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.jpg"
    path.write_bytes(encoded(noise(64, 48), "JPEG"))
    return path


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: str
    err: str


class Shell:
    """Runs command lines in this process, as a pipe would."""

    def __init__(
        self,
        bundle: Path,
        capture: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self._bundle = bundle
        self._capture = capture
        self._monkeypatch = monkeypatch

    def run(self, *arguments: object, stdin: str = "") -> Result:
        self._monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(stdin.encode())))
        code = run([str(argument) for argument in arguments])
        return Result(code, *self._capture.readouterr())

    def ask(self, *arguments: object, stdin: str = "") -> dict[str, Any]:
        result = self.run("ask", "--json", "-m", self._bundle, *arguments, stdin=stdin)
        assert (result.code, result.err) == (0, "")
        answer: dict[str, Any] = json.loads(result.out)
        return answer

    def failure(self, *arguments: object, stdin: str = "") -> tuple[int, str]:
        result = self.run(*arguments, stdin=stdin)
        assert result.out == ""
        assert result.err.count("\n") == 1
        return result.code, result.err


@pytest.fixture
def shell(
    bundle: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    return Shell(bundle, capsys, monkeypatch)


def test_the_streamed_answer_is_the_one_in_json(shell: Shell, bundle: Path) -> None:
    options = ("--seed", 7, "--max-new-tokens", 12, "--temperature", 1, "Hello 你好")
    answer = shell.ask(*options)
    streamed = shell.run("ask", "-m", bundle, *options)
    assert streamed.code == 0
    assert answer["finish_reason"] == "length"
    assert len(answer["token_ids"]) == answer["completion_tokens"] == 12
    assert answer["capacity"]["total"] == CAPACITY
    assert streamed.out.removesuffix("\n") == safe_text(answer["text"])


def test_a_prompt_from_stdin_is_the_prompt_of_the_argument(shell: Shell, bundle: Path) -> None:
    options = ("--greedy", "--max-new-tokens", 5)
    assert (
        shell.ask(*options, stdin="Hello\n")["token_ids"]
        == shell.ask(*options, "Hello")["token_ids"]
    )


def test_pictures_take_slots_and_change_the_answer(shell: Shell, bundle: Path, photo: Path) -> None:
    options = ("--greedy", "--max-new-tokens", 4, "Hello")
    without, one = shell.ask(*options), shell.ask("--image", photo, *options)
    two = shell.ask("--image", photo, "--image", photo, *options)
    capped = shell.ask("--image", photo, "--max-image-tokens", 1, *options)
    assert without["image_tokens"] == 0 < one["image_tokens"]
    assert two["image_tokens"] == 2 * one["image_tokens"]
    assert capped["image_tokens"] == 1
    assert one["prompt_tokens"] - without["prompt_tokens"] == one["image_tokens"] + 2


def test_an_answer_stops_at_the_capacity_with_its_last_slot_used(shell: Shell) -> None:
    fixed = shell.ask("--max-new-tokens", 1, "q")["prompt_tokens"]
    answer = shell.ask("--greedy", "q" * (CAPACITY - 2 - fixed))
    assert answer["finish_reason"] == "capacity"
    assert answer["capacity"] == {"total": CAPACITY, "used": CAPACITY, "free": 0}
    assert answer["completion_tokens"] == len(answer["token_ids"]) >= 2


def test_a_prompt_over_the_capacity_is_refused_with_the_numbers(
    shell: Shell, bundle: Path, photo: Path
) -> None:
    code, said = shell.failure("ask", "-m", bundle, "--image", photo, "word " * 200)
    assert code == 1
    assert "prompt needs " in said
    assert "for pictures)" in said
    assert f"capacity {CAPACITY}" in said


@pytest.mark.parametrize("count", [1, 2])
def test_threads_do_not_change_the_answer(shell: Shell, bundle: Path, count: int) -> None:
    options = ("--greedy", "--max-new-tokens", 6, "Hello")
    assert shell.ask("--threads", count, *options)["token_ids"] == shell.ask(*options)["token_ids"]


def test_every_bad_picture_has_its_own_line(shell: Shell, bundle: Path, tmp_path: Path) -> None:
    files = {
        "text.png": (b"hello", "is not a picture"),
        "empty.png": (b"", "is empty (0 bytes)"),
        "bomb.png": (png_claiming(30_000, 30_000), "30000 x 30000 pixels"),
        "strip.png": (encoded(noise(402, 2), "PNG"), "200 times"),
        "half.jpg": (encoded(noise(200, 200), "JPEG")[:900], "damaged or incomplete JPEG"),
    }
    for name, (data, reason) in files.items():
        (tmp_path / name).write_bytes(data)
        code, said = shell.failure("ask", "-m", bundle, "--image", tmp_path / name, "x")
        assert (code, reason in said, name in said) == (1, True, True), said
    assert "is a folder" in shell.failure("ask", "-m", bundle, "--image", tmp_path, "x")[1]


def test_a_damaged_bundle_is_named(shell: Shell, bundle: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(bundle, broken)
    (broken / "text" / "model.onnx").write_bytes(b"")
    code, said = shell.failure("ask", "-m", broken, "x")
    assert code == 1
    assert "model.onnx is truncated" in said
    (broken / MANIFEST_NAME).unlink()
    assert "is not a bundle" in shell.failure("ask", "-m", broken, "x")[1]


def test_the_demo_answers_where_there_is_no_bundle(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [shell.run("ask", "--max-new-tokens", 8, "Hello") for _ in range(2)]
    first, second = (run.err for run in runs)
    assert [run.code for run in runs] == [0, 0]
    assert all(run.out for run in runs)
    assert "preparing the demo model (once)" in first
    assert "preparing" not in second
    assert "this is the tiny demo model; for a real one run q35chat export" in second


def test_a_conversation_line_by_line_remembers(shell: Shell, bundle: Path, photo: Path) -> None:
    typed = f"/image {photo}\nwhat is it?\n/new\nhello\n/quit\n"
    result = shell.run("chat", "--plain", "-m", bundle, stdin=typed)
    assert result.code == 0, result.err
    assert "photo.jpg: 64 x 48 pixels" in result.err
    assert "a new chat" in result.err
