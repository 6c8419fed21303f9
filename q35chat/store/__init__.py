"""Conversations on disk: SQLite in the user's data folder, pictures as files beside it.

Knows turns and settings as values; must not know the engine, a runtime or a screen.
"""

from q35chat.chat.history.records import ConversationRecord, SearchHit, TurnRecord
from q35chat.store.store import Store

__all__ = ["ConversationRecord", "SearchHit", "Store", "TurnRecord"]
