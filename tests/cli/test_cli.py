from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.models import TyperPath

import q35chat
from q35chat import cli as cli_module
from q35chat.ascend.options import NpuOptions
from q35chat.cli import Commands, run
from q35chat.commands import ask as ask_module
from q35chat.commands import chat as chat_module
from q35chat.commands import export as export_module
from q35chat.commands.ask import AskOptions, SamplingOptions
from q35chat.commands.chat import ChatOptions
from q35chat.store import Store
from q35export.request import ExportRequest
from tests.cli.scripted import recorded
from tests.store.builders import conversation
from tests.support.imports import ROOT, modules


def failed(*arguments: str) -> tuple[int, str]:
    seen = recorded()
    code = run(arguments, seen.console)
    assert seen.out.getvalue() == ""
    return code, seen.err.getvalue()


def commands(group: Any) -> Iterator[Any]:
    for command in [group.get_command(None, name) for name in group.list_commands(None)]:
        yield from commands(command) if hasattr(command, "list_commands") else [command]


def test_every_option_and_argument_that_is_a_path_is_read_the_same_way() -> None:
    group = get_command(cli_module.app)
    kinds = {
        (command.name, parameter.name): parameter.type
        for command in (group, *commands(group))
        for parameter in command.params
    }
    assert [name for name, kind in kinds.items() if kind.name in ("file", "directory")] == []
    readers = {name: kind.func for name, kind in kinds.items() if hasattr(kind, "func")}
    assert len(readers) > 12
    for read in readers.values():
        assert read("~/a b") == read("'~/a b'") == Path.home() / "a b"
    assert [name for name, kind in kinds.items() if isinstance(kind, TyperPath)] == []


def test_an_address_of_the_web_as_a_picture_is_refused_before_anything_runs() -> None:
    for command in (["ask", "a"], ["chat", "--plain"]):
        code, err = failed(*command, "--image", "https://example.org/a//b.png?x=1")
        assert code == 1
        assert "https://example.org/a//b.png?x=1 is not fetched, nothing is" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ask", "--colour"], "No such option: --colour"),
        (["--colour"], "No such option: --colour"),
        (["fly"], "No such command 'fly'"),
        (["ask", "a", "b"], "unexpected extra argument"),
        (["ask", "--top-p", "2", "a"], "Invalid value for '--top-p'"),
        (["ask", "--top-k", "-1", "a"], "Invalid value for '--top-k'"),
        (["ask", "--top-p", "nan", "a"], "nan is not a finite number"),
        (["ask", "--min-p", "nan", "a"], "nan is not a finite number"),
        (["ask", "--temperature", "nan", "a"], "nan is not a finite number"),
        (["ask", "--temperature", "inf", "a"], "inf is not in the range 0<=x<=5"),
        (["ask", "--presence-penalty", "nan", "a"], "nan is not a finite number"),
        (["ask", "--repetition-penalty", "nan", "a"], "nan is not a finite number"),
        (["ask", "--threads", "99999999999", "a"], "Invalid value for '--threads'"),
        (["ask", "--max-new-tokens", "0", "a"], "Invalid value for '--max-new-tokens'"),
        (["ask", "--temperature", "hot", "a"], "Invalid value for '--temperature'"),
        (["ask", "--image"], "--image"),
        (["export", "--precision", "int3"], "Invalid value for '--precision'"),
        (["export", "--component", "ears"], "Invalid value for '--component'"),
        (["export", "--target", "toaster"], "toaster"),
        (["export", "--precision", "fp32", "--block-size", "64"], "--block-size 64 is for int8"),
        (
            ["export", "--max-seq-len", "1"],
            "--max-seq-len must be at least 17, found 1: a question",
        ),
        (["verify", "out"], "--against"),
        (["--model-dir", "x", "ask", "a"], "put the options after ask"),
        (["--device-id", "0", "doctor"], "put the options after doctor"),
        (["ask", "--thinking-budget", "0", "a"], "Invalid value for '--thinking-budget'"),
        (["ask", "--no-thinking", "--thinking-budget", "9", "a"], "--no-thinking leaves no"),
        (["ask", "--temperature", "0", "--top-k", "9", "a"], "--temperature 0 always takes"),
        (["doctor", "--operators", "--json"], "one report; drop --json or it"),
        (["doctor", "--operators", "--all"], "one report; drop --all or it"),
        (["doctor", "--report", "r.json"], "--report is for --operators; add that"),
        (["doctor", "--device-id", "0"], "--device-id is for --operators; add that"),
        (["--no-images", "--pictures", "sixel"], "drop --pictures sixel or it"),
        (["export", "--dry-run", "--verify"], "--dry-run writes nothing to compare"),
        (["export", "./here", "--source", "modelscope"], "--source is for a hub id, and ./here"),
        (["export", "./here", "--revision", "main"], "--revision is for a hub id, and ./here"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments: list[str], said: str) -> None:
    code, err = failed(*arguments)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


def test_an_option_name_cannot_steer_the_terminal() -> None:
    _, err = failed("ask", "--\x1b[31mred")
    assert "\x1b" not in err


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"q35chat {q35chat.__version__}\n"


@pytest.mark.parametrize("command", Commands.NAMES)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    assert f"Usage: q35chat {command}" in capsys.readouterr().out


def test_the_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands")[2]
    assert re.findall(r"^│ (\w+)", listed, re.MULTILINE) == list(Commands.NAMES)


def test_a_command_that_is_almost_right_is_suggested() -> None:
    said = failed("bnch")[1]
    assert "No such command 'bnch'. Did you mean 'bench'? Try q35chat --help" in said
    assert "to ask something" not in said


def test_a_question_without_a_command_is_shown_the_way_to_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cli_module, "program", lambda: "bin/q35chat")
    code, said = failed("hi", "there")
    assert code == 2
    hint = 'to ask something: bin/q35chat ask "..."'
    assert said == f"q35chat: No such command 'hi'; {hint}. Try q35chat --help\n"
    assert "to ask something" not in failed("sessions", "hi")[1]
    assert "to ask something" not in failed("--", "--hi")[1]


def test_sessions_without_a_command_shows_its_help_and_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen = recorded()
    assert run(["sessions"], seen.console) == 2
    assert "Usage: q35chat sessions" in capsys.readouterr().out
    assert seen.err.getvalue() == ""


def loaded(program: str) -> set[str]:
    """The modules that `program` imports."""
    script = f"import sys\n{program}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


def test_the_chat_waits_for_no_other_command() -> None:
    program = "import typer.main as t, q35chat.cli as c\nt.get_command(c.app).make_context('q', [])"
    found = loaded(program)
    assert "q35chat.commands.chat" in found
    assert not found & {f"q35chat.commands.{name}" for name in Commands.NAMES if name != "chat"}


def test_a_command_imports_what_it_works_with_when_it_runs_and_its_help_nothing() -> None:
    names = [name for name, _ in modules("q35chat") if name.startswith("q35chat.commands.")]
    heavy = {"numpy", "onnx", "onnx_ir", "onnxruntime", "tokenizers", "torch", "transformers"}
    heavy |= {"PIL", "huggingface_hub", "jinja2", "psutil", "q35export", "sqlite3", "textual"}
    heavy |= {"q35chat.states.listing", "httpx2", "keyring", "q35chat.endpoint.network"}
    assert len(names) > len(Commands.NAMES)
    helps = "for name in ([], ['ask'], ['export']): assert run([*name, '--help']) == 0"
    program = f"import {', '.join(names)}\nfrom q35chat.cli import run\n{helps}"
    assert not heavy & loaded(program)


def test_every_option_of_ask_reaches_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[AskOptions] = []

    def asked(options: AskOptions, *_: Any) -> int:
        seen.append(options)
        return 130

    monkeypatch.setattr(ask_module, "ask_once", asked)
    arguments = (
        "ask -i a.png --image b.png --system S --thinking --thinking-budget 8 --max-new-tokens 9 "
        "--stop X --stop Y --json --stats --temperature 0.5 --top-p 0.6 --top-k 7 --min-p 0.1 "
        "--presence-penalty 1.5 --repetition-penalty 1.1 --seed 3 -m M --max-image-tokens 64 "
        "--threads 2 --speculate lookup Hello"
    )
    assert run(arguments.split()) == 130
    assert seen == [
        AskOptions(
            prompt="Hello",
            images=[Path("a.png"), Path("b.png")],
            system="S",
            thinking=True,
            thinking_budget=8,
            max_new_tokens=9,
            stop=["X", "Y"],
            as_json=True,
            stats=True,
            sampling=SamplingOptions(
                temperature=0.5,
                top_p=0.6,
                top_k=7,
                min_p=0.1,
                presence_penalty=1.5,
                repetition_penalty=1.1,
                seed=3,
            ),
            model_dir=Path("M"),
            max_image_tokens=64,
            threads=2,
            speculate="lookup",
        )
    ]
    run(["ask", "--no-thinking", "--greedy", "Hello"])
    assert seen[1] == AskOptions(
        prompt="Hello", thinking=False, sampling=SamplingOptions(greedy=True)
    )


@pytest.mark.parametrize("name", [[], ["chat"]])
def test_every_option_of_chat_reaches_it_with_and_without_its_name(
    name: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[ChatOptions] = []

    def opened(options: ChatOptions, *_: Any) -> int:
        seen.append(options)
        return 7

    monkeypatch.setattr(chat_module, "open_chat", opened)
    arguments = (
        "--plain -m M --max-image-tokens 64 --threads 2 --session S -i a.png --image b.png "
        "--prompt P --pictures sixel --thinking --thinking-budget 8 --snapshot-mib 3 "
        "--state-cache-mib 4 --speculate off "
        "--device-id 1 --residency swap --host-state-roundtrip"
    )
    assert run([*name, *arguments.split()]) == 7
    assert run([*name, "--no-images", "--no-thinking", "-c"]) == 7
    assert seen == [
        ChatOptions(
            model_dir=Path("M"),
            max_image_tokens=64,
            threads=2,
            plain=True,
            session="S",
            images=[Path("a.png"), Path("b.png")],
            prompt="P",
            pictures="sixel",
            npu=NpuOptions(1, "swap", True),
            snapshot_mib=3,
            state_cache_mib=4,
            speculate="off",
            thinking=True,
            thinking_budget=8,
        ),
        ChatOptions(no_images=True, thinking=False, continues=True),
    ]


def test_every_option_of_export_reaches_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def exported(request: Any, *_: Any, verify: bool | None) -> int:
        seen.append((request, verify))
        return 0

    monkeypatch.setattr(export_module, "export_model", exported)
    arguments = (
        "export some/model --out o --target cpu --precision int8 --max-seq-len 99 --block-size 64 "
        "--component text --force --no-verify --dry-run --source modelscope --revision r1"
    )
    run(arguments.split())
    run(["export"])
    (request, verify), (default, default_verify) = seen
    assert (request.model, request.out, request.target) == ("some/model", Path("o"), "cpu")
    assert (request.precision, request.max_seq_len, request.component) == ("int8", 99, "text")
    assert (request.force, request.dry_run, verify) == (True, True, False)
    assert (request.block_size, default.block_size) == (64, ExportRequest().block_size)
    assert (request.source, request.revision) == ("modelscope", "r1")
    assert (default.model, default.out, default.target) == ("Qwen/Qwen3.5-4B", Path("out"), None)
    assert (default.precision, default.max_seq_len, default_verify) == (None, 2048, None)


def test_debug_shows_the_traceback_wherever_it_stands(tmp_path: Path) -> None:
    for arguments in (["--debug", "ask", "x"], ["ask", "--debug", "x"]):
        code, err = failed(*arguments, "--model-dir", str(tmp_path / "none"))
        assert code == 1
        assert "Traceback" in err
    assert "Traceback" not in failed("ask", "x", "--model-dir", str(tmp_path / "none"))[1]


BAD = "a\udcff"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ask", "--system", BAD, "Hello"), "--system is not UTF-8 (byte 1 is 0xff)"),
        (("ask", "--stop", "x", "--stop", BAD, "Hello"), "--stop is not UTF-8 (byte 1 is 0xff)"),
        (("ask", BAD), "the prompt is not UTF-8 (byte 1 is 0xff)"),
        (("sessions", "rename", "c1", BAD), "the title is not UTF-8 (byte 1 is 0xff)"),
    ],
)
def test_text_that_is_not_utf8_is_told_before_anything_is_done(
    arguments: tuple[str, ...], said: str
) -> None:
    with Store() as store:
        store.create(conversation("c1", title="before"), ())
    seen = recorded()
    assert run(arguments, seen.console) == 2
    assert seen.err.getvalue() == f"q35chat: {said}; convert it\n"
    with Store() as store:
        assert [one.title for one in store.listed()] == ["before"]
