"""What the whole program says about getting a real model. A leaf: knows nothing."""

from __future__ import annotations

from typing import Final

REAL_MODEL: Final = "Qwen/Qwen3.5-0.8B"
DEFAULT_OUT: Final = "out"
EXPORT_COMMAND: Final = f"q35chat export {REAL_MODEL} --out {DEFAULT_OUT}/"
OPEN_COMMAND: Final = f"q35chat --model-dir {DEFAULT_OUT}/"
