"""What is shown as a command can be typed: no text spells the program's name before one, what makes
a bundle again says all that it takes, and what is to be done next fits the state of the bundle.

`processes.program()` says what to type. This reads every string of the sources, except what only
their readers see: docstrings of modules and classes.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat import cli
from q35chat.bundle.bundle import Manifest, Source
from q35chat.cli import Commands
from q35chat.commands.export_command import adding, repair
from q35chat.commands.next_command import as_typed_here, chat_command, left_to_convert, next_step
from tests.export.bundles import sample_manifest
from tests.support.imports import modules

MODULES = dict(pair for package in ("q35chat", "q35export") for pair in modules(package))
SPELLED = re.compile(rf"q35chat (?:-|(?:{'|'.join(Commands.NAMES)})\b)")


def texts(source: str) -> Iterator[str]:
    """All strings of a source, but for the docstrings of its module and its classes."""
    tree = ast.parse(source)
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef)]
    firsts = [body[0].value for body in bodies if body and isinstance(body[0], ast.Expr)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in firsts:
            yield " ".join(node.value.split())


def spelled(source: str) -> list[str]:
    """The texts that show a command with the program's bare name."""
    return [text for text in texts(source) if SPELLED.search(text)]


def test_no_text_spells_the_programs_name_before_a_command() -> None:
    found = {name: spelled(file.read_text(encoding="utf-8")) for name, file in MODULES.items()}
    assert {name: shown for name, shown in found.items() if shown} == {}


@pytest.mark.parametrize(
    "source",
    [
        'said = "no chat yet; q35chat ask begins one"',
        'said = (f"{path} is not converted: run q35chat "\n"convert {folder}")',
        'print("q35chat --plain")',
        'def command():\n    """See q35chat export."""',
    ],
)
def test_a_spelled_command_is_found(source: str) -> None:
    assert len(spelled(source)) == 1


def test_docstrings_of_modules_and_classes_and_the_bare_name_are_no_advice() -> None:
    source = '"""The module of `q35chat ask`."""\nclass A:\n    """Of q35chat export."""\n'
    assert spelled(f'{source}    name = "update q35chat"') == []


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing on PATH and no chat yet; the program is run as a module."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sys.executable", "/opt/python3")
    monkeypatch.setattr("sys.argv", ["__main__.py"])


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["sessions", "list"], "no chats yet; /opt/python3 -m q35chat begins one"),
        (["sessions", "show"], "is no chat yet. `/opt/python3 -m q35chat ask` begins one."),
        (["sessions", "show", "x"], "`/opt/python3 -m q35chat sessions list` shows their ids."),
        (["sessions", "sow"], "Try /opt/python3 -m q35chat sessions --help"),
        (["--plane"], "Try /opt/python3 -m q35chat --help"),
    ],
)
def test_advice_names_the_program_as_it_was_started(
    arguments: list[str], hint: str, elsewhere: None, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.run(arguments)
    assert hint in capsys.readouterr().err


OUT = Path("my out")
HUB = "huggingface:Qwen/Qwen3.5-0.8B"


def manifest(options: dict[str, str | int] | None = None, **more: object) -> Manifest:
    text: dict[str, str | int] = {"precision": "int4", "block_size": "auto", "max_seq_len": 64}
    text["rounding"] = "calibrated"
    return replace(sample_manifest(), options={"text": text | (options or {})}, **more)  # type: ignore[arg-type]


def arguments(advice: str) -> list[str]:
    """What a shell makes of the command that is shown."""
    (command,) = [part for part in advice.split("`") if "--out" in part]
    return shlex.split(command)


def test_damage_is_repaired_by_an_export_of_the_same_model_into_the_same_folder() -> None:
    given = arguments(repair(manifest(), OUT))
    assert given[:3] == ["q35chat", "export", "Qwen/Qwen3.5-0.8B"]
    assert given[3:] == ["--precision", "int4", "--max-seq-len", "64", "--out", "my out", "--force"]


@pytest.mark.parametrize(
    ("known", "wanted"),
    [
        (manifest(precision="int8"), ["--precision int8"]),
        (manifest({"block_size": 64}), ["--block-size 64"]),
        (manifest({"mtp": "head"}), ["--mtp"]),
        (manifest({"bits": "5.5"}), ["--bits 5.5"]),
        (manifest({"rounding": "nearest"}), ["--no-calibrate"]),
        (sample_manifest(), ["--block-size 32 --no-calibrate"]),
        (manifest(capacity=4096), ["--max-seq-len 4096"]),
        (
            manifest(source=Source("Qwen/Qwen3.5-0.8B", "v1", f"{HUB}@abc")),
            ["export Qwen/Qwen3.5-0.8B --revision v1 "],
        ),
        (
            manifest(source=Source("Qwen/Qwen3.5-0.8B", "d1", "modelscope:Qwen/Qwen3.5-0.8B@d1")),
            ["export Qwen/Qwen3.5-0.8B --source modelscope "],
        ),
        (
            manifest(
                {"gears": "16,32", "image_gears": "4", "cache": "growing", "delta_rule": "unfused"},
                target="ascend-310p",
                precision="fp16",
            ),
            ["--target ascend-310p --dtype fp16 --gears 16,32 --image-gears 4 ",
             "--no-fused-prefill --no-fused-decode "],
        ),
        (
            manifest({"cache": "fixed", "step_tokens": 4}, target="ascend-310p", precision="fp16"),
            ["--target ascend-310p --dtype fp16 --step-tokens 4 "],
        ),
        (
            manifest({"dtype": "fp16", "cache": "fixed"}, target="ascend-310p", precision="w8a8"),
            ["--target ascend-310p --precision w8a8 --dtype fp16 "],
        ),
    ],
)  # fmt: skip
def test_the_options_that_a_bundle_has_are_named(known: Manifest, wanted: list[str]) -> None:
    advice = repair(known, OUT)
    assert [words for words in wanted if words not in advice] == []


def test_a_folder_that_nobody_knows_is_described_and_no_other_model_named() -> None:
    known = manifest(source=Source("demo-model", None, "folder:abc"))
    advice = repair(known, OUT)
    assert advice.startswith("export it from the folder of its checkpoint, demo-model, with `")
    assert "q35chat export" not in advice
    assert arguments(advice)[-3:] == ["--out", "my out", "--force"]


def test_a_component_is_added_from_the_model_that_is_known() -> None:
    known = manifest(source=Source("demo-model", None, "folder:abc"), precision="int8")
    advice = adding(known, "vision", OUT, "a b/demo-model")
    assert arguments(advice) == [
        "q35chat", "export", "a b/demo-model", "--precision", "int8", "--out", "my out",
        "--component", "vision",
    ]  # fmt: skip


def test_the_head_and_the_capacity_are_none_of_the_vision_graphs_business() -> None:
    advice = adding(manifest({"mtp": "head"}), "vision", OUT)
    assert "--mtp" not in advice
    assert "--max-seq-len" not in advice


LEFT = {"prefill": "prefill/prefill_graph.mindir", "decode": "decode/model.onnx"}
DONE = {"prefill": "prefill/prefill_graph.mindir", "decode": "decode/decode_graph.mindir"}


@pytest.mark.parametrize(
    ("target", "graphs", "left", "said"),
    [
        ("cpu", {"text": "text/model.onnx"}, [], "chat with it: q35chat --model-dir 'a b'"),
        ("ascend-310p", LEFT, ["decode"], "convert it on the NPU's host: q35chat convert 'a b'"),
        ("ascend-310p", DONE, [], "chat with it: q35chat --model-dir 'a b'"),
    ],
)
def test_a_bundle_is_chatted_with_only_when_nothing_is_left_to_convert(
    target: str, graphs: dict[str, str], left: list[str], said: str
) -> None:
    manifest = replace(sample_manifest(), target=target, graphs=graphs)
    assert left_to_convert(manifest) == left
    assert next_step(Path("a b"), manifest) == said


def test_the_folder_that_is_opened_anyway_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chat_command(Path("out")) == "q35chat"
    assert chat_command(tmp_path / "out") == f"q35chat --model-dir {tmp_path / 'out'}"

    settings = tmp_path / "config" / "q35chat" / "settings.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('model_dir = "elsewhere"\n', encoding="utf-8")
    assert chat_command(Path("out")) == "q35chat --model-dir out"
    settings.write_text("broken", encoding="utf-8")
    assert chat_command(Path("out")) == "q35chat --model-dir out"


def test_a_folder_is_named_as_one_would_type_it_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert as_typed_here(tmp_path / "out") == Path("out")
    assert as_typed_here(tmp_path.parent / "out") == tmp_path.parent / "out"
