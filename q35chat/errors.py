"""The one family of errors a user sees.

A message is one line: what happened, the numbers, what to do next. Nothing here knows
where it is shown; `cli` prints it and exits with `exit_code`, the application draws a panel.
"""

from __future__ import annotations

from typing import ClassVar


class Q35Error(Exception):
    """A failure with a message written for the user."""

    exit_code: ClassVar[int] = 1


class UsageError(Q35Error):
    """The command or its options are wrong."""

    exit_code: ClassVar[int] = 2


class OccupiedError(UsageError):
    """Another bundle stands where one should be written; it is replaced only when asked to."""


class CheckpointError(Q35Error):
    """The Hugging Face checkpoint is missing, incomplete or not a Qwen3.5 model."""


class BundleError(Q35Error):
    """The exported bundle is missing, damaged, or written for another version."""


class ExportError(Q35Error):
    """The export cannot be done or finished."""


class PictureError(Q35Error):
    """A picture cannot be read or used."""


class CapacityError(Q35Error):
    """The prompt does not fit the KV slots that the bundle was exported with."""


class RuntimeFailure(Q35Error):  # noqa: N818  (RuntimeError is taken)
    """The graph runtime is missing or failed while it ran."""


class ScreenError(Q35Error):
    """The application on the screen ended by a mistake of its own."""


class OutputError(Q35Error):
    """A result cannot be written to its file."""


class StoreError(Q35Error):
    """The conversation store cannot be opened, read or written."""
