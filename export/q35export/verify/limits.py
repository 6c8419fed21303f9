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

# What rounding may change in one matrix, by the bits of its codes. In a block of 32 the peak is at
# most sqrt(32) times the block's own RMS. At 8 bits no value moves by more than peak / 254, so
# 0.0223 holds for any weights (0.0053 is usual). At 4 bits half a step is peak / 16, and clipping
# is only chosen where it lowers the error: 0.35 holds for any weights, 0.084 is usual for a bell
# curve; the limit leaves room for heavier tails. Blocks of 128 may peak at twice as much: 0.0065
# and 0.0974 are usual for a bell curve, and the same limits have room for them.
WEIGHTS = {8: Limits(cosine=0.9997, nrmse=0.0223), 4: Limits(cosine=0.98, nrmse=0.2)}

# What the runtime's own rounding may add: the same weights, with inputs rounded to int8 in blocks
# of 32 (0.54 % of each). How such noise grows is a property of the model: in random weights of the
# 0.8B shape it reaches an NRMSE of 0.13 in the logits. A kernel that computes nonsense reaches 1.
RUNNING = Limits(cosine=0.9, nrmse=0.5)

# Against the checkpoint's own weights nothing is limited: what 4 bits cost is the model's affair.
# Random weights of the 0.8B shape, the worst case, reach an NRMSE of 0.16 at int8 and 0.9 to 1.05
# at int4. The figures are there to be looked at.
