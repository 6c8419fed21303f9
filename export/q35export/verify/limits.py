"""How far a bundle may lie from the reference, and where each limit comes from."""

from __future__ import annotations

from dataclasses import dataclass

from q35export.verify.metrics import Difference


@dataclass(frozen=True, slots=True)
class Limits:
    """The least cosine, the largest NRMSE and error allowed; None is no limit."""

    cosine: float
    nrmse: float
    max_abs: float | None = None

    def broken_by(self, found: Difference) -> bool:
        """Whether any of the three is overstepped; NaN oversteps them all."""
        held = found.cosine >= self.cosine and found.nrmse <= self.nrmse
        return not (held and (self.max_abs is None or found.max_abs <= self.max_abs))


# The contract's limits between a fused graph and the reference, for every tensor. Both sides have
# the same weights and FP32 arithmetic, so a sound graph stays a hundred times below them.
GRAPH = Limits(cosine=0.999, nrmse=0.02, max_abs=1.0)

# What quantisation may cost, for logits and picture embeddings, against the checkpoint's own
# weights. Rounding to int8 in blocks of 32 errs by 0.53 % of a matrix (peak / 127 / sqrt(12)), to
# int4 by 8.4 %, and rounded int8 inputs by another 0.54 %. Errors of the projections add up like
# noise, so a sound export of 24 to 32 layers stays within about half of these; one block whose
# scale is wrong does not.
QUANTISED = {
    "int8": Limits(cosine=0.99, nrmse=0.15),
    "int4": Limits(cosine=0.90, nrmse=0.50),
}
