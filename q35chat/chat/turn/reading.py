"""Reads a prompt into the state: pictures not seen yet, then tokens not there yet.

Takes snapshots where turns end, so that any earlier turn is at most one turn, or `SPACING`
tokens, away. Knows nothing of what is sampled afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from time import perf_counter

import numpy as np

from q35chat.chat.events import PrefillProgress, VisionProgress
from q35chat.chat.model import Model
from q35chat.chat.prompt.pictures import PlacedPicture
from q35chat.chat.prompt.template import Prompt
from q35chat.engine.session import Array

Progress = VisionProgress | PrefillProgress
SPACING = 64
PART = 16  # tokens read ahead at a time: who sends something waits for no more


class PromptReader:
    """Reads one prompt, at most `part` tokens at a time. `complete` tells that it was not stopped;
    times are in milliseconds."""

    def __init__(
        self,
        model: Model,
        prompt: Prompt,
        should_stop: Callable[[], bool],
        part: int | None = None,
    ) -> None:
        self._model = model
        self._prompt = prompt
        self._should_stop = should_stop
        self._part = part
        self._reused = 0
        self.complete = False
        self.vision_ms = 0.0
        self.prefill_ms = 0.0

    def events(self) -> Iterator[Progress]:
        """Do it, event by event; a stop is seen between pictures and between chunks."""
        self._reused = self._model.cache.reusable(self._prompt.keys)
        needed = self._pictures_to_read()
        embeds = yield from self._encode([picture for picture, _ in needed])
        if self._should_stop():
            return
        rows = [embeds[picture.key][skip:] for picture, skip in needed]
        yield from self._read(np.concatenate(rows) if rows else None)

    def _pictures_to_read(self) -> list[tuple[PlacedPicture, int]]:
        """Pictures with tokens still to be read, and how many of each are there already."""
        places = np.flatnonzero(self._prompt.ids == self._model.image_token_id)
        needed, first = [], 0
        for picture in self._prompt.pictures:
            begin = int(places[first])
            skip = max(0, self._reused - begin)
            if skip < picture.tokens:
                needed.append((picture, skip))
            first += picture.tokens
        return needed

    def _encode(
        self, pictures: list[PlacedPicture]
    ) -> Generator[VisionProgress, None, dict[int, Array]]:
        """The rows of all pictures by their keys, unless it is stopped before."""
        store = self._model.pictures
        rows = {one.key: store.embeds(one) for one in pictures if store.is_encoded(one)}
        fresh = {one.key: one for one in pictures if one.key not in rows}
        started = perf_counter()
        tokens, tokens_done = sum(picture.tokens for picture in fresh.values()), 0
        if fresh:
            yield VisionProgress(0, len(fresh), 0, tokens)
        for done, picture in enumerate(fresh.values(), start=1):
            if self._should_stop():
                break
            rows[picture.key] = store.embeds(picture)
            self.vision_ms = (perf_counter() - started) * 1e3
            tokens_done += picture.tokens
            yield VisionProgress(done, len(fresh), tokens_done, tokens)
        return rows

    def _read(self, rows: Array | None) -> Iterator[PrefillProgress]:
        prompt, model = self._prompt, self._model
        started = perf_counter()
        reused = begin = model.cache.rewind(prompt.keys)
        taken, total = 0, len(prompt)
        # snapshots: after the last answer and the last question, and before them where enough lies
        # between; where other chats may begin alike
        ends = spaced(prompt.ends if model.decoder.reads_in_parts else prompt.ends[-1:], reused)
        if model.decoder.reads_in_parts:
            ends = sorted({*ends, *(end for end in prompt.shared if end > reused)})
        parts = range(reused + self._part, total, self._part) if self._part else ()
        for end in sorted({*ends, *parts, total}):
            part = slice(begin, end)
            images = int((prompt.ids[part] == model.image_token_id).sum())
            chunks = model.decoder.chunks(
                prompt.ids[part],
                prompt.positions[:, part],
                rows[taken : taken + images] if rows is not None and images else None,
                keys=prompt.keys[part],
            )
            for done in chunks:
                elapsed = perf_counter() - started
                self.prefill_ms = elapsed * 1e3
                read = begin + done - reused
                self.complete = begin + done == total
                yield PrefillProgress(read, total - reused, read / elapsed)
                if not self.complete and self._should_stop():
                    return
            if end in ends:
                model.cache.keep()
            begin, taken = end, taken + images


def spaced(ends: Sequence[int], begin: int) -> list[int]:
    """Those of `ends` after `begin` that are `SPACING` apart, and the last two."""
    found: list[int] = []
    for place, end in enumerate(ends, start=1):
        last = found[-1] if found else begin
        if end > begin and (end - last >= SPACING or place > len(ends) - 2):
            found.append(end)
    return found


def read_ahead(model: Model, prompt: Prompt, should_stop: Callable[[], bool]) -> None:
    """Read the beginning of `prompt` up to the end of its last answer, if the state can go back
    to the question before it; all of what comes before any question."""
    if model.kept is not None:
        model.kept.recall(prompt.keys)
    *_, question, answer, _ = (0, 0, *prompt.ends)
    beginning = prompt.until(answer)
    if not question <= model.cache.reusable(prompt.keys) < answer:
        return
    reader = PromptReader(model, beginning, should_stop, PART)
    for _ in reader.events():
        if should_stop():
            return
    if reader.complete:
        model.cache.keep()
