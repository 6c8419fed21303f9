"""What is read out of a converter's log."""

from __future__ import annotations

import pytest

from q35export.ascend.converter import explain

LITE = (
    "[ERROR] LITE(7,7f1c,converter_lite):2026-01-01-00:00:00.1 "
    "[mindspore-lite/tools/converter/converter.cc:1065] RunConvert] Convert graph meta failed\n"
)
CANN = (
    "[ERROR] GE(7,converter_lite):2026-01-01-00:00:00.1 [infershape_pass.cc:90]7 Run: "
    "ErrorNo: 1343225860(Parameter's invalid!) shape of node MatMul_3 is wrong\n"
)
WARNING = "[WARNING] LITE(7,7f1c,converter_lite):t [numa.cc:35] Open] Open libnuma.so failed!\n"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (WARNING + LITE, "Convert graph meta failed; for CANN's own messages set ASCEND_SLOG"),
        (CANN + LITE, "ErrorNo: 1343225860(Parameter's invalid!) shape of node MatMul_3 is wrong"),
        (WARNING, "exit code 1: [WARNING] LITE(7,7f1c,converter_lite):t [numa.cc:35] Open] Open"),
        ("", "exit code 1; for CANN's own messages set ASCEND_SLOG_PRINT_TO_STDOUT=1"),
    ],
)
def test_an_unknown_failure_is_told_by_its_first_error(log: str, cause: str) -> None:
    assert explain(log, 1).startswith(cause)


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        (
            "[ERROR] GE(7,x):t [engine.cc:1]7 Get: EZ3003: no kernel for [ChunkGatedDeltaRule]",
            "a Custom operator has no kernel: install its vendor package",
        ),
        (
            "E19010: No parser is registered for Op [Custom_1, optype RecurrentGatedDeltaRule]",
            "a Custom operator has no kernel: install its vendor package",
        ),
        ("dlopen libascend_acl_plugin.so failed: libgraph.so", "CANN or the NPU was not found"),
        ("Get soc version failed", "CANN or the NPU was not found"),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("what():  std::bad_alloc", "the converter ran out of memory"),
        ("SetGraphInputShape] names differ", "did not take the shapes or gears"),
    ],
)
def test_known_lines_have_their_advice(line: str, advice: str) -> None:
    assert advice in explain(WARNING + line + "\n", 1)


@pytest.mark.parametrize("code", [-9, 137])
def test_a_process_that_was_killed_had_no_memory(code: int) -> None:
    assert "ran out of memory" in explain("", code)
