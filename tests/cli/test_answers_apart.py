"""Descriptor 1 carries answers and nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.imports import ROOT

_PROGRAM = """
import os, sys
from q35chat import cli

def run(arguments):
    os.write(1, b"printed by a library\\n")
    print("the answer \\u4e2d")
    return 0

cli.run = run
cli.main()
"""


@pytest.mark.parametrize("closed", ["", "2>&-"])
def test_what_a_library_prints_on_descriptor_1_is_no_answer(closed: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -X utf8 -c "$1" {closed}', sys.executable, _PROGRAM],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout.decode()) == (0, "the answer \u4e2d\n")
    assert done.stderr == (b"" if closed else b"printed by a library\n")
