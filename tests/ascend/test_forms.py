"""Each form of the kernels computes what the exported graph does."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from q35chat.errors import UsageError
from q35export.ascend.forms import AS_EXPORTED, KernelForms, rewrite
from q35export.ascend.operator_cases import operator_cases, working_forms
from q35export.ascend.reference import GraphExecutor
from tests.ascend.conftest import Export
from tests.support.ascend import AscendChat, Exported

IDS = [3, 7, 9, 11, 2]
CASES = list(operator_cases())


def test_forms_are_read_as_they_are_written() -> None:
    forms = KernelForms.parse("selected-cache, recurrent-310p")

    assert forms == KernelForms(recurrent_310p=True, selected_cache=True)
    assert str(forms) == "recurrent-310p,selected-cache"
    assert (str(AS_EXPORTED), KernelForms.parse("")) == ("", AS_EXPORTED)
    with pytest.raises(UsageError, match=r"knows recurrent-310p, .*, not scatter; a trial of the"):
        KernelForms.parse("scatter")


@pytest.mark.parametrize(
    "text", ["recurrent-310p", "ordered-inputs", "selected-cache", "recurrent-310p,selected-cache"]
)
def test_a_decode_in_other_forms_gives_the_same_bits(
    exported: Export, tmp_path: Path, text: str
) -> None:
    whole = exported("plain")
    source = whole.graphs["decode"].path
    model = ir.load(source)
    rewrite(model, KernelForms.parse(text))
    shutil.copyfile(source.with_name("model.bin"), tmp_path / "model.bin")
    ir.save(model, tmp_path / "model.onnx")
    other = GraphExecutor(tmp_path / "model.onnx")
    changed = Exported(whole.config, whole.options, {**whole.graphs, "decode": other})
    chat, wanted = AscendChat(changed), AscendChat(whole)
    chat.prefill(IDS), wanted.prefill(IDS)

    for token in (5, 9, 20):
        np.testing.assert_array_equal(chat.step(token), wanted.step(token))
    for name, state in wanted.states.items():
        np.testing.assert_array_equal(chat.states[name], state)
    assert other.outputs == whole.graphs["decode"].outputs


@pytest.mark.parametrize(
    ("failing", "forms"),
    [
        ((), ""),
        (("grouped",), ""),
        (("RecurrentGatedDeltaRule, ",), "recurrent-310p"),
        (("Rule, fresh", "Rule, continued", "Rule, padded", "310P"), "ordered-inputs"),
        (("Scatter, slot 2047",), "selected-cache"),
        (("128 tokens, continued", "128 tokens, padded"), "fresh-prefill,exact-prefill"),
        ((" 4 tokens",), "single-steps"),
        (("RecurrentGatedDeltaRule, ", " 4 tokens"), "recurrent-310p,single-steps"),
        (("expanded",), None),
        (("Scatter", "Selection"), None),
        (("128 tokens, fresh",), None),
    ],
)
def test_the_first_way_that_works_is_chosen(failing: tuple[str, ...], forms: str | None) -> None:
    results = [(case, not any(name in case.name for name in failing)) for case in CASES]
    found = working_forms(results)

    assert (None if found is None else str(found)) == forms
