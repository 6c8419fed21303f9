"""The text of a PDF, on standard output: run in a process of its own, with limits of memory and of
time, for a file can ask for any amount of either.

`python -m q35chat.chat.pdf_child FILE`; a failure is a line on standard error and exit code 1.
"""

from __future__ import annotations

import logging
import resource
import sys
from typing import Final

from pypdf import PdfReader

_MEMORY: Final = 2 << 30
_SECONDS: Final = 25
_MOST_CHARACTERS: Final = 1_000_000


def main(path: str) -> int:
    """Print the text of every page; the exit code."""
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    logging.disable(logging.CRITICAL)
    written = 0
    try:
        for page in PdfReader(path).pages:
            text = page.extract_text().strip()
            if text:
                sys.stdout.write(f"{text}\n\n")
            written += len(text)
            if written > _MOST_CHARACTERS:
                break
        sys.stdout.flush()
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it is said in a line
        sys.stderr.write(f"{error or type(error).__name__}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
