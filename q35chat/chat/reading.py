"""Reads a prompt into the state: pictures not seen yet, then tokens not there yet.

Takes snapshots where turns end. Knows nothing of what is sampled afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter

import numpy as np

from q35chat.chat.events import PrefillProgress, VisionProgress
from q35chat.chat.model import Model
from q35chat.chat.pictures import PlacedPicture
from q35chat.chat.prompt import Prompt
from q35chat.engine.session import Array

Progress = VisionProgress | PrefillProgress


class PromptReader:
    """Reads one prompt. `complete` tells that it was not stopped; times are in milliseconds."""

    def __init__(self, model: Model, prompt: Prompt, should_stop: Callable[[], bool]) -> None:
        self._model = model
        self._prompt = prompt
        self._should_stop = should_stop
        self._reused = 0
        self.complete = False
        self.vision_ms = 0.0
        self.prefill_ms = 0.0

    def events(self) -> Iterator[Progress]:
        """Do it, event by event; a stop is seen between pictures and between chunks."""
        self._reused = self._model.cache.reusable(self._prompt.keys)
        needed = self._pictures_to_read()
        yield from self._encode([picture for picture, _ in needed])
        if self._should_stop():
            return
        rows = [self._model.pictures.embeds(picture)[skip:] for picture, skip in needed]
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

    def _encode(self, pictures: list[PlacedPicture]) -> Iterator[VisionProgress]:
        store = self._model.pictures
        fresh = {picture.key: picture for picture in pictures if not store.is_encoded(picture)}
        if not fresh:
            return
        started = perf_counter()
        yield VisionProgress(0, len(fresh))
        for done, picture in enumerate(fresh.values(), start=1):
            if self._should_stop():
                return
            store.embeds(picture)
            self.vision_ms = (perf_counter() - started) * 1e3
            yield VisionProgress(done, len(fresh))

    def _read(self, rows: Array | None) -> Iterator[PrefillProgress]:
        prompt, model = self._prompt, self._model
        started = perf_counter()
        reused = begin = model.cache.rewind(prompt.keys)
        taken = 0
        ends = [end for end in prompt.ends if end > reused]
        if not model.decoder.reads_in_parts:
            ends = ends[-1:]
        for end in (*ends, len(prompt)):
            if end == begin:
                continue
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
                self.complete = begin + done == len(prompt)
                yield PrefillProgress(read, len(prompt) - reused, read / elapsed)
                if not self.complete and self._should_stop():
                    return
            if not self.complete:
                model.cache.keep()
            begin, taken = end, taken + images
