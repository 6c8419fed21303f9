"""The application over a scripted model, for looking at and for tests in a real terminal.

`python -m tests.doubles.play` answers at about eighteen tokens per second; `--fast` at once.
"""

from __future__ import annotations

import sys
import threading

from q35chat.settings import Settings
from q35chat.tui.app import run
from tests.doubles.scripted_backend import Reply
from tests.doubles.scripted_workspace import ScriptedWorkspace

ANSWER = """\
The sky is blue because of **Rayleigh scattering**: short waves are scattered more than long ones.

```python
def scattered(wavelength_nm: float) -> float:
    return (550 / wavelength_nm) ** 4
```

| colour | nm | scattered |
|---|---|---|
| blue | 450 | 2.2 |
| red | 650 | 0.5 |

In the evening the light has a longer way to go, so more of the blue is lost. 傍晚时天空变红。
"""


def main() -> int:
    """Run until it is left."""
    fast = "--fast" in sys.argv
    pause = 0.0 if fast else 0.055
    reply = Reply(
        ANSWER,
        reasoning="" if fast else "They ask about the sky. Scattering, briefly.",
        wall_ms=(54.0, 52.0, 55.0, 61.0, 53.0, 50.0, 90.0, 56.0),
        pause_s=pause,
    )
    gate = threading.Event()
    gate.set()
    return run(ScriptedWorkspace([reply], load_gate=gate), Settings())


if __name__ == "__main__":
    sys.exit(main())
