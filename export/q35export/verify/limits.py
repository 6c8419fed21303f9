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

# What rounding may change in one matrix, by the bits of its codes. Both are for blocks of 128, the
# largest; smaller ones lie further inside. The peak of a block is at most sqrt(128) times its RMS.
# At 8 bits no value moves by more than peak / 254: an NRMSE of 0.0446 holds for any weights, and so
# does a cosine of sqrt(1 - 0.0446**2); 0.0065 is usual for a bell curve (0.0053 in blocks of 32).
# At 4 bits half a step is peak / 16, and clipping is only chosen where it lowers the error: 0.58
# holds for any weights, 0.0974 is usual for a bell curve (0.084 in blocks of 32), 0.19 for tails as
# heavy as those of Student's t with 3 degrees of freedom; the limit has room for these.
WEIGHTS = {8: Limits(cosine=0.999, nrmse=0.0446), 4: Limits(cosine=0.973, nrmse=0.23)}

# What the runtime's own rounding may add: the same weights, with inputs rounded to int8 in blocks
# of 32 (0.54 % of each). How such noise grows is a property of the model: in random weights of the
# 0.8B shape it reaches an NRMSE of 0.13 in the logits. A kernel that computes nonsense reaches 1.
RUNNING = Limits(cosine=0.9, nrmse=0.5)

# Against the checkpoint's own weights nothing is limited: what 4 bits cost is the model's affair.
# Random weights of the 0.8B shape, the worst case, reach an NRMSE of 0.16 at int8 and 0.9 to 1.05
# at int4. The figures are there to be looked at.
