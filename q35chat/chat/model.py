"""The parts of one loaded model that a turn works with."""

from __future__ import annotations

from dataclasses import dataclass, field

from q35chat.chat.prompt.kept import KeptStates
from q35chat.chat.prompt.pictures import ModelPictures
from q35chat.chat.prompt.reuse import PrefixCache
from q35chat.chat.prompt.template import ConversationTemplate
from q35chat.chat.prompt.tokenizer import ChatTokenizer
from q35chat.engine.decoder import Decoder
from q35chat.engine.speculation import Odds
from q35chat.user_input import Speculate


@dataclass(frozen=True, slots=True)
class Model:
    """One sequence's decoder and everything around it.

    In a `rounded` graph the inputs of a projection are, which makes rounding errors that a run of
    several tokens has and a step has not large enough to change a close choice.
    `speculate` says whether the next tokens may be guessed and computed ahead, `odds` what that
    was worth so far, `head_odds` what it was worth where the model's own head guessed.
    `kept` are the states that outlive the process; None where none do.
    """

    tokenizer: ChatTokenizer
    template: ConversationTemplate
    pictures: ModelPictures
    decoder: Decoder
    cache: PrefixCache
    stop_ids: frozenset[int]
    image_token_id: int | None
    rounded: bool = False
    speculate: Speculate = "auto"
    odds: Odds = field(default_factory=Odds)
    kept: KeptStates | None = None
    head_odds: Odds = field(default_factory=lambda: Odds(head=True))
