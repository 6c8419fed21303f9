"""An answer that fits a form: which tokens may come next, by the library `llguidance`.

An extra: only who asks for such an answer needs it. Owns the library; knows no prompt and no
sampling.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np

from q35chat.chat.prompt.tokenizer import ChatTokenizer, token_bytes
from q35chat.engine.session import Array
from q35chat.errors import RuntimeFailure, UsageError
from q35chat.processes import install_command
from q35chat.text import safe_line

AnswerForm = Mapping[str, Any] | str
"""A JSON schema, or a grammar in Lark's notation, as `llguidance` reads it."""

_COMPACT: Final = {"whitespace_flexible": False}
"""A small model could write white space without end."""
_SAMPLE: Final = 'Yes: {"größe": [1, 2]}\n'


class Grammars:
    """Constraints for one tokenizer, over `vocab_size` logits; `stop_ids` end an answer. For any
    thread."""

    def __init__(self, tokenizer: ChatTokenizer, stop_ids: frozenset[int], vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._stop_ids = stop_ids
        self._vocab_size = vocab_size

    def constraint(self, form: AnswerForm) -> GrammarConstraint:
        """A constraint for one answer. Raises UsageError for a form that cannot be kept, for a
        vocabulary that cannot be read, and where the library is missing."""
        what = "grammar" if isinstance(form, str) else "JSON schema"
        try:
            from llguidance import LLMatcher  # noqa: PLC0415  (an extra)
        except ImportError as error:
            raise UsageError(
                f"answers by a {what} need one more package, llguidance: "
                f"{install_command('llguidance')}"
            ) from error
        if isinstance(form, str):
            grammar = LLMatcher.grammar_from_lark(form)
        else:
            grammar = LLMatcher.grammar_from_json_schema(json.dumps(form), overrides=_COMPACT)
        matcher = LLMatcher(self._library_tokenizer, grammar, log_level=0)
        if matcher.is_error():
            said = safe_line(str(matcher.get_error()).partition("\n")[0])
            raise UsageError(f"the {what} cannot be kept: {said}")
        constraint = GrammarConstraint(matcher, self._vocab_size, self._stop_ids, what)
        try:
            constraint.allowed()
        except RuntimeFailure as error:
            raise UsageError(f"the {what} cannot be kept: no answer fits it") from error
        return constraint

    @cached_property
    def _library_tokenizer(self) -> Any:  # noqa: ANN401  (the library's own)
        from llguidance import LLTokenizer, TokenizerWrapper  # noqa: PLC0415

        spelling = _Spelling(self._tokenizer, self._stop_ids, self._vocab_size)
        spelt = b"".join(spelling.tokens[token] for token in spelling(_SAMPLE.encode()))
        if spelt != _SAMPLE.encode():
            raise UsageError(
                "the vocabulary of this bundle spells no bytes as Qwen's does, so its answers "
                "cannot be held to a form; use a bundle of a published model"
            )
        return LLTokenizer(TokenizerWrapper(spelling), eos_token=sorted(self._stop_ids))


class GrammarConstraint:
    """What one answer may go on with; a `Constraint`. `what` it is kept to is for messages."""

    def __init__(
        self,
        matcher: Any,  # noqa: ANN401  (the library's own)
        vocab_size: int,
        stop_ids: frozenset[int],
        what: str,
    ) -> None:
        self._what = what
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._stop_ids = stop_ids

    def allowed(self) -> Array:
        """Which tokens may come next, [V] bool; only those that end an answer where it is whole.
        Raises RuntimeFailure."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        found: Array = np.zeros(self._vocab_size, np.bool_)
        known = np.unpackbits(bits, bitorder="little")[: self._vocab_size]
        found[: len(known)] = known
        if self._matcher.is_error() or not found.any():
            said = safe_line(str(self._matcher.get_error()).partition("\n")[0])
            raise RuntimeFailure(f"the {self._what} left no token to go on with: {said}")
        return found

    def take(self, token: int) -> None:
        """The answer goes on with `token`. Raises RuntimeFailure for one that was not allowed."""
        if token not in self._stop_ids and not self._matcher.consume_token(token):
            raise RuntimeFailure(f"token {token} does not fit the {self._what}")


class _Spelling:
    """What the library asks of a tokenizer."""

    def __init__(self, tokenizer: ChatTokenizer, stop_ids: frozenset[int], vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = min(stop_ids)
        self.bos_token_id = None
        self.tokens: Sequence[bytes] = [
            token_bytes(tokenizer, token) or (tokenizer.piece(token) or f"<{token}>").encode()
            for token in range(vocab_size)
        ]
        self.special_token_ids = [
            token
            for token in range(vocab_size)
            if token in tokenizer.special_ids or tokenizer.piece(token) is None
        ]

    def __call__(self, text: bytes) -> list[int]:
        """The ids of a text."""
        return self._tokenizer.encode_literally(text.decode())
