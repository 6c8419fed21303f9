"""A conversation as the model reads it: ids, picture places, mRoPE positions, slot keys.

The prompt is the checkpoint's template over the whole conversation. What the model wrote itself
goes in as its own ids, never tokenised again; what a user wrote never becomes a special token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from q35chat.chat.prompt.pictures import PlacedPicture
from q35chat.chat.prompt.template import ConversationTemplate
from q35chat.chat.values import Turn
from q35chat.counting import counted
from q35chat.engine.session import Array
from q35chat.errors import BundleError
from q35chat.vision.positions import mrope_positions


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """T tokens to be in the state before the next one is sampled.

    `ids` [T] int64; `keys` [T] int64 are the ids with each picture token replaced by its picture's
    key; `positions` [3, T] int64. `ends` are token counts at which a turn ends and a later prompt
    may part from this one, the last of them before the answer. `opened` tells that the prompt ends
    inside a thought, `written` are the ids at its end that the model wrote itself, when an answer
    is gone on with.
    """

    ids: Array
    keys: Array
    positions: Array
    pictures: tuple[PlacedPicture, ...]
    ends: tuple[int, ...]
    opened: bool
    written: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def image_tokens(self) -> int:
        """Slots that pictures take."""
        return sum(picture.tokens for picture in self.pictures)

    def until(self, end: int) -> Prompt:
        """Its first `end` tokens, which hold all of its pictures."""
        return replace(
            self,
            ids=self.ids[:end],
            keys=self.keys[:end],
            positions=self.positions[:, :end],
            ends=tuple(other for other in self.ends if other < end),
            opened=False,
            written=(),
        )


def build_prompt(
    template: ConversationTemplate,
    turns: Sequence[Turn],
    pictures: Sequence[PlacedPicture],
    *,
    thinking: bool,
    image_token_id: int,
) -> Prompt:
    """The prompt of `turns`; `pictures` are those of all turns in order.

    Turns that end with an answer are gone on with. Raises BundleError when the template places
    another number of pictures.
    """
    asked, written = list(turns), list[int]()
    if turns[-1].role == "assistant":
        unfinished = asked.pop()
        thinking, written = template.thought(unfinished), template.written_ids(unfinished)
    rendered = template.ids(asked, thinking=thinking)
    widths = _widths(rendered == image_token_id, pictures)
    ids = np.concatenate([np.repeat(rendered, widths), np.array(written, np.int64)])
    is_image = ids == image_token_id
    keys = ids.copy()
    keys[is_image] = np.repeat(
        np.array([picture.key for picture in pictures], np.int64),
        [picture.tokens for picture in pictures],
    )
    positions, _ = mrope_positions(
        is_image, [(picture.rows, picture.columns) for picture in pictures]
    )
    places = np.concatenate([[0], np.cumsum(widths)])
    ends = places[template.ends(rendered, thinking=thinking)]
    return Prompt(
        ids=ids,
        keys=keys,
        positions=positions,
        pictures=tuple(pictures),
        ends=tuple(int(end) for end in ends if end > 0),
        opened=template.opens_thought(thinking=thinking),
        written=tuple(written),
    )


def _widths(is_placeholder: Array, pictures: Sequence[PlacedPicture]) -> Array:
    """How many tokens each rendered one stands for, [T] int64. Raises BundleError."""
    places = int(is_placeholder.sum())
    if places != len(pictures):
        raise BundleError(
            f"the chat template made {counted(places, 'place')} for "
            f"{counted(len(pictures), 'picture')}: export the bundle again"
        )
    widths = np.ones(len(is_placeholder), np.int64)
    widths[is_placeholder] = [picture.tokens for picture in pictures]
    return widths
