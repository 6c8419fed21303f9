"""The parts of one loaded model that a turn works with."""

from __future__ import annotations

from dataclasses import dataclass

from q35chat.chat.pictures import Pictures
from q35chat.chat.reuse import PrefixCache
from q35chat.chat.template import ConversationTemplate
from q35chat.chat.thinking import ThinkTags
from q35chat.chat.tokenizer import ChatTokenizer
from q35chat.engine.decoder import Decoder


@dataclass(frozen=True, slots=True)
class Model:
    """One sequence's decoder and everything around it."""

    tokenizer: ChatTokenizer
    tags: ThinkTags
    template: ConversationTemplate
    pictures: Pictures
    decoder: Decoder
    cache: PrefixCache
    stop_ids: frozenset[int]
    image_token_id: int
