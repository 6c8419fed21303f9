"""What is to be typed for a bundle, for every state it can be in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.commands.next_command import as_typed_here, chat_command, left_to_convert, next_step
from tests.export.bundles import sample_manifest

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
