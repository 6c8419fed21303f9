"""`python -m tools.language_model --work DIR`: texts, tokenizer, training, checkpoint.

Debian packages with good texts: python3.11-doc, python-django-doc, debian-handbook,
debian-reference-zh-cn, libreoffice-help-zh-cn, manpages-zh, git-doc. A run that was stopped goes
on where it was; `DIR/checkpoint` is the model as last saved, `DIR/held_out` what it never read.
"""

from __future__ import annotations

import argparse
import sysconfig
from pathlib import Path

from .texts import Corpus
from .train import Plan, train


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("build/language-model"))
    parser.add_argument(
        "--texts",
        type=Path,
        nargs="+",
        default=[Path("/usr/share/doc"), Path("/usr/share/man"), Path("/usr/share/libreoffice")],
        help="folders of HTML pages, manual pages and plain texts",
    )
    parser.add_argument(
        "--code", type=Path, nargs="+", default=[Path(sysconfig.get_paths()["stdlib"])]
    )
    parser.add_argument("--steps", type=int, default=Plan.steps)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    corpus = Corpus.make(asked.work, asked.texts, asked.code)
    train(corpus, Plan(steps=asked.steps), asked.work, asked.threads)


if __name__ == "__main__":
    main()
