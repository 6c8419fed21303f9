"""What the parts of the chat ask of the screen that they are shown on. Knows none of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from q35chat.tui.widgets.messages import Severity

T = TypeVar("T")


class Say(Protocol):
    """Says something in a message that goes away by itself."""

    def __call__(self, text: str, severity: Severity = "information", *, about: str = "") -> None:
        """A newer message takes the place of one that is `about` the same."""


class Background(Protocol):
    """Works off the screen's thread."""

    def __call__(
        self,
        group: str,
        work: Callable[[], T],
        then: Callable[[T], object] | None = None,
        *,
        exclusive: bool = False,
    ) -> None:
        """Run `work`, which must not raise, in a worker thread of a group, and `then` with what it
        gives in the screen's thread; `exclusive` cancels what of its group waits."""


class Run(Protocol):
    """Runs commands of the table."""

    def __call__(self, command_id: str, argument: str = "") -> Awaitable[None]:
        """Run a command with the argument of a slash command."""


@dataclass(frozen=True, slots=True)
class Host:
    """`show` shows the session and the draft as they are now; `refresh` does too, and takes away
    what `remark` put into the status line, unless a message waits there to be sent. `later` calls
    after the messages that wait already."""

    say: Say
    remark: Callable[[str], None]
    show: Callable[[], None]
    refresh: Callable[[], None]
    background: Background
    later: Callable[..., object]
    run: Run
