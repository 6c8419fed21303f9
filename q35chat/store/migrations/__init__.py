"""The schema's history: one file a step, applied in order, never changed once released.

`PRAGMA user_version` counts the steps that a file has seen.
"""

from __future__ import annotations

from q35chat.store.migrations import (
    m0001_conversations,
    m0002_search,
    m0003_summaries,
    m0004_strict,
    m0005_no_index,
    m0006_lists,
    m0007_strict_lists,
)

STEPS: tuple[tuple[str, ...], ...] = (
    m0001_conversations.SQL,
    m0002_search.SQL,
    m0003_summaries.SQL,
    m0004_strict.SQL,
    m0005_no_index.SQL,
    m0006_lists.SQL,
    m0007_strict_lists.SQL,
)
SCHEMA = len(STEPS)
UNTYPED = 6
"""The schema from which tables are made again where a value has not the type of its column."""
