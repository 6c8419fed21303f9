"""The outcome of a comparison as values, and as a table."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Literal

from q35export.verify.metrics import Difference, Limits

ComparisonKind = Literal["weights", "graph", "running", "quantisation"]
MEANING: dict[ComparisonKind, str] = {
    "weights": "the bundle's rounded weights, against the checkpoint's",
    "graph": "same weights on both sides, FP32 arithmetic",
    "running": "same weights on both sides, the bundle as it runs",
    "quantisation": "the bundle as it runs, against the checkpoint's own weights",
}


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One tensor of one sample; `tensor` is its kind, an underscore, and which one.

    Without `limits` it is shown for information.
    """

    comparison: ComparisonKind
    sample: str
    tensor: str
    difference: Difference
    limits: Limits | None

    @property
    def broken(self) -> bool:
        """Whether it oversteps its limits."""
        return self.limits is not None and self.limits.broken_by(self.difference)


@dataclass(frozen=True, slots=True)
class TokenRow:
    """Greedy choices of one sample: `equal` of `total` are those of the reference, which the
    bundle was made to follow. `required` of them must be."""

    comparison: ComparisonKind
    sample: str
    equal: int
    total: int
    required: int

    @property
    def broken(self) -> bool:
        """Whether too few agree."""
        return self.equal < self.required


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that `verify` found out about a bundle."""

    bundle: str
    precision: str
    tensors: tuple[TensorRow, ...]
    tokens: tuple[TokenRow, ...]

    @property
    def passed(self) -> bool:
        """Whether no limit is broken."""
        return not (any(r.broken for r in self.tensors) or any(r.broken for r in self.tokens))

    def worst(self) -> tuple[TensorRow, ...]:
        """One row a kind of tensor: that of the layer with the lowest cosine."""
        found: dict[tuple[str, str, str], TensorRow] = {}
        for row in self.tensors:
            key = (row.comparison, row.sample, row.tensor.partition("_")[0])
            other = found.get(key)
            if other is None or (row.broken, -row.difference.cosine) > (
                other.broken,
                -other.difference.cosine,
            ):
                found[key] = row
        return tuple(found.values())

    def table(self, width: int = 100) -> str:
        """The table as plain text, `width` columns wide at most; states show their worst layer."""
        from rich import box  # noqa: PLC0415
        from rich.console import Console  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        names = {row.comparison for row in self.tensors}
        table = Table(
            title=Text(f"{self.bundle} ({self.precision}) against transformers"),
            caption="\n".join(f"{name}: {MEANING[name]}" for name in MEANING if name in names),
            caption_justify="left",
            box=box.SIMPLE_HEAD,
        )
        for name in ("comparison", "sample", "what"):
            table.add_column(name, no_wrap=True)
        for name in ("cosine", "NRMSE", "max error"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("limits")
        for row in self.worst():
            found = row.difference
            numbers = f"{found.cosine:.7f}", f"{found.nrmse:.2e}", f"{found.max_abs:.2e}"
            what = _short(row.tensor)
            table.add_row(row.comparison, row.sample, what, *numbers, _verdict(row))
        for tokens in self.tokens:
            numbers = f"{tokens.equal} of {tokens.total}", "", ""
            table.add_row(tokens.comparison, tokens.sample, "tokens", *numbers, _verdict(tokens))
        stream = io.StringIO()
        Console(file=stream, width=width, color_system=None).print(table)
        return stream.getvalue().rstrip("\n")


def _short(tensor: str) -> str:
    """`int4_language_model.layers.2.mlp.down_proj` becomes `int4 layers.2.down_proj`."""
    kind, _, name = tensor.partition("_")
    parts = name.split(".")
    return f"{kind} {'.'.join([*parts[1:3], parts[-1]]) if len(parts) > 4 else name}".rstrip()


def _verdict(row: TensorRow | TokenRow) -> str:
    if row.broken:
        return "BROKEN"
    limited = row.required > 0 if isinstance(row, TokenRow) else row.limits is not None
    return "held" if limited else "-"
