"""What the comparison of formats reads and computes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.benchmarks.quality.divergence import Divergence, divergence
from tests.benchmarks.quality.llama_cpp import parsed

SAID = """\
chunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence
   1    7231.0013 ±  256.6896       0.01777 ±    0.00915       0.01100 ±    0.00019
====== Perplexity statistics ======
Mean PPL(Q)                   : 7774.942745 ± 181.062579
Mean ln(PPL(Q)/PPL(base))     :   0.013765 ±   0.006622
Mean PPL(Q)/PPL(base)         :   1.013860 ±   0.006714
====== KL divergence statistics ======
Mean    KLD:   0.011266 ±   0.000135
99.9%   KLD:   0.024286
99.0%   KLD:   0.019880
Median  KLD:   0.010961
 1.0%   KLD:   0.005667
Same top p: 49.020 ± 2.216 %
"""


def test_the_figures_of_llama_perplexity_are_found() -> None:
    assert parsed(SAID) == Divergence(0.011266, 0.010961, 0.01988, 0.4902, 1.01386)
    with pytest.raises(ValueError, match="KLD"):
        parsed("nothing")


def test_equal_logits_do_not_diverge_and_a_shift_changes_nothing() -> None:
    logits = np.random.default_rng(0).normal(size=(7, 11)).astype(np.float32)
    found = divergence(logits, logits + np.float32(3), np.arange(7))
    assert found.mean == pytest.approx(0, abs=1e-6)
    assert found.top_1 == 1
    assert found.perplexity == pytest.approx(1, abs=1e-5)


def test_a_surer_model_of_the_right_tokens_has_the_lower_perplexity() -> None:
    logits = np.eye(5, dtype=np.float32)
    found = divergence(logits, 2 * logits, np.arange(5))
    p, q = (np.exp(k) / (np.exp(k) + 4) for k in (1.0, 2.0))
    assert found.perplexity == pytest.approx(p / q)
    assert found.mean == pytest.approx(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))
