"""`python -m tests.benchmarks.peers.to_gguf SOURCES CHECKPOINT OUT [TYPE]`: a checkpoint as GGUF.

Runs llama.cpp's own converter, which refuses tokenizers that it does not know by their digest; that
of a made-up checkpoint is taken for the real Qwen3.5's. TYPE is f16, or f32.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any


def main(sources: Path, checkpoint: str, out: str, kind: str = "f16") -> None:
    """Convert."""
    sys.path[:0] = [str(sources), str(sources / "gguf-py")]
    base: Any = __import__("conversion.base").base
    base.TextModel.get_vocab_base_pre = lambda _self, _tokenizer: "qwen35"
    script = sources / "convert_hf_to_gguf.py"
    sys.argv = [str(script), checkpoint, "--no-mtp", "--outfile", out, "--outtype", kind]
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
