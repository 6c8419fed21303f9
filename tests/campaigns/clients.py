"""`python -m tests.campaigns.clients PYTHON [NAME...]`: well-known clients against a real server
that serves the demo. PYTHON is one that has them: `pip install openai anthropic llm oterm
'pydantic-ai-slim[openai]'` into an environment of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile

from q35chat.processes import python_command, python_environment
from tests.campaigns.server import address
from tests.support.imports import ROOT

NAMES = ("openai", "openai_tools", "openai_schema", "anthropic", "pydantic_ai", "llm", "oterm")
_SCRIPTS = ROOT / "tests" / "campaigns" / "client_scripts.py"
_PATIENCE_S = 180.0


def run(python: str, names: list[str]) -> int:
    """How many of the clients failed."""
    server = subprocess.Popen(
        python_command("-m", "q35chat", "serve", "--port", "0"),
        env=python_environment(),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    failed = 0
    try:
        url = address(server)
        for name in names:
            with tempfile.TemporaryDirectory() as home:
                done = subprocess.run(
                    [python, str(_SCRIPTS), name, url],
                    env={**os.environ, "LLM_USER_PATH": home, "OTERM_DATA_DIR": home},
                    capture_output=True,
                    check=False,
                    text=True,
                    timeout=_PATIENCE_S,
                )
            failed += done.returncode != 0
            said = done.stdout.strip() or done.stderr.strip().rpartition("\n")[2]
            sys.stdout.write(f"{name}: {'failed: ' if done.returncode else ''}{said}\n")
    finally:
        server.terminate()
        server.wait(_PATIENCE_S)
    return failed


def main() -> int:
    """The campaign."""
    parser = argparse.ArgumentParser()
    parser.add_argument("python")
    parser.add_argument("names", nargs="*", default=list(NAMES), help=", ".join(NAMES))
    options = parser.parse_args()
    return 1 if run(options.python, options.names) else 0


if __name__ == "__main__":
    sys.exit(main())
