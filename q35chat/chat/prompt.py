"""A conversation as the model reads it: ids, picture places, mRoPE positions, slot keys.

The prompt is the checkpoint's template over the whole conversation. What the model wrote itself
goes in as its own ids, never tokenised again; what a user wrote never becomes a special token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from q35chat.chat.pictures import PlacedPicture
from q35chat.chat.template import ConversationTemplate
from q35chat.chat.thinking import ThinkTags
from q35chat.chat.values import Turn
from q35chat.engine.session import Array
from q35chat.errors import BundleError
from q35chat.vision.positions import mrope_positions


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """T tokens to be in the state before the next one is sampled.

    `ids` [T] int64; `keys` [T] int64 are the ids with each picture token replaced by its picture's
    key; `positions` [3, T] int64. `ends` are token counts at which a turn ends and a later prompt
    may part from this one. `opened` tells that the prompt ends inside a thought, `written` are
    the ids at its end that the model wrote itself, when an answer is gone on with.
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


def build_prompt(
    template: ConversationTemplate,
    turns: Sequence[Turn],
    pictures: Sequence[PlacedPicture],
    *,
    thinking: bool,
    image_token_id: int,
    tags: ThinkTags,
) -> Prompt:
    """The prompt of `turns`; `pictures` are those of all turns in order.

    Turns that end with an answer are gone on with. Raises BundleError when the template places
    another number of pictures.
    """
    asked, written = list(turns), list[int]()
    if turns[-1].role == "assistant":
        unfinished = asked.pop()
        thinking, written = template.thought(unfinished), template.written_ids(unfinished)
    rendered = template.ids(asked, generation_prompt=True, thinking=thinking)
    expand = _Expansion(image_token_id, pictures)
    ids = expand.ids([*rendered, *written])
    is_image = ids == image_token_id
    keys = ids.copy()
    keys[is_image] = np.repeat(
        np.array([picture.key for picture in pictures], np.int64),
        [picture.tokens for picture in pictures],
    )
    positions, _ = mrope_positions(
        is_image, [(picture.rows, picture.columns) for picture in pictures]
    )
    ends = [_shared(rendered, other) for other in template.parting(asked, thinking=thinking)]
    return Prompt(
        ids=ids,
        keys=keys,
        positions=positions,
        pictures=tuple(pictures),
        ends=tuple(sorted({expand.length(rendered[:end]) for end in ends if end > 0})),
        opened=tags.left_open(rendered[max(ends, default=0) :]),
        written=tuple(written),
    )


def _shared(ids: Sequence[int], others: Sequence[int]) -> int:
    """Length of the beginning that both have."""
    return sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ids, others, strict=False))
    )


class _Expansion:
    """Puts each picture's tokens where the template left one placeholder."""

    def __init__(self, image_token_id: int, pictures: Sequence[PlacedPicture]) -> None:
        self._image_token_id = image_token_id
        self._tokens = [picture.tokens for picture in pictures]

    def ids(self, rendered: Sequence[int]) -> Array:
        places = rendered.count(self._image_token_id)
        if places != len(self._tokens):
            raise BundleError(
                f"the chat template made {places} places for {len(self._tokens)} pictures: "
                "export the bundle again"
            )
        return np.fromiter(self._expanded(rendered), np.int64)

    def length(self, rendered: Sequence[int]) -> int:
        return sum(1 for _ in self._expanded(rendered))

    def _expanded(self, rendered: Sequence[int]) -> Iterator[int]:
        tokens = iter(self._tokens)
        for token in rendered:
            if token == self._image_token_id:
                yield from [token] * next(tokens)
            else:
                yield token
