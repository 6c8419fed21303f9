"""The child process that runs what a bundle's tokenizer and template say, which may be anything.

Serves one request a line on its standard input, each naming the folder it is for. Its memory and
the time of each request have limits that the system keeps, also inside native code: whoever asked
sees it end. Owns transformers; knows no conversation and no positions.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from q35chat.errors import BundleError, Remedy
from q35chat.json_reader import Fields, read_json

Message = Mapping[str, Any]
MEMORY: Final = 3 << 29
"""Bytes that it may take beyond those of its libraries."""
_AT_ONCE: Final = 2  # bundles, while one takes the place of another
_wrong: Final = partial(BundleError, remedy=Remedy.EXPORT_AGAIN)
_CANNOT_READ: Final = "the bundle's tokenizer cannot read this text"
_OWN_CHARACTERS: Final = 1_000_000
_OF_A_MESSAGE: Final = 1_000


class TokenizerFiles:
    """The tokenizer and template of one folder, as transformers reads them."""

    def __init__(self, folder: Path, *, pictures: bool) -> None:
        if not (folder / "tokenizer.json").is_file():
            raise BundleError(f"{folder} has no tokenizer.json", Remedy.EXPORT_AGAIN)
        from transformers import PreTrainedTokenizerFast  # noqa: PLC0415  (heavy)

        documents = _documents(folder)
        with _translated(f"{folder / 'tokenizer.json'} is a damaged tokenizer"):
            tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
        templates = _templates(folder, documents, tokenizer.chat_template, pictures=pictures)
        used, tokenizer.chat_template = next(iter(templates.items()))
        tokenizer.model_max_length = sys.maxsize  # the capacity is the limit
        others = (name for name in templates if templates[name] != tokenizer.chat_template)
        self._tokenizer = tokenizer
        self._template_files = (used, *others)

    def facts(self) -> dict[str, Any]:
        """The vocabulary, ids by spelling; added tokens, special ones, the one that ends a
        sequence; the template, and the files that have one."""
        added = self._tokenizer.added_tokens_decoder
        return {
            "vocabulary": self._tokenizer.get_vocab(),
            "added": list(added),
            "special": {token.content: index for index, token in added.items() if token.special},
            "template": self._tokenizer.chat_template,
            "template_files": self._template_files,
            "end": self._tokenizer.eos_token_id,
        }

    def render(
        self,
        messages: Sequence[Message],
        *,
        generation_prompt: bool,
        thinking: bool,
        chosen: Mapping[str, object],
    ) -> str:
        """The conversation as the model reads it, with further variables that were `chosen`."""
        with _translated(f"the chat template ({self._template_files[0]}) refused the conversation"):
            text: str = self._tokenizer.apply_chat_template(
                list(messages),
                tokenize=False,
                add_generation_prompt=generation_prompt,
                enable_thinking=thinking,
                **chosen,
            )
        _check_rendered(text, messages)
        return text

    def encode(self, text: str, *, literally: bool) -> list[int]:
        """Ids of `text`; taken literally, the name of a special token is not that token."""
        with _translated(_CANNOT_READ):
            ids: list[int] = self._tokenizer.encode(
                text, add_special_tokens=False, split_special_tokens=literally, verbose=False
            )
        return ids

    def length(self, text: str) -> int:
        """Bytes of `text` as the vocabulary spells it."""
        normalizer = self._tokenizer.backend_tokenizer.normalizer
        with _translated(_CANNOT_READ):
            text = text if normalizer is None else normalizer.normalize_str(text)
        return len(text.encode("utf-8", "surrogatepass"))


def _documents(folder: Path) -> dict[str, Fields]:
    """What those JSON files say, by name, that may hold a template. Raises BundleError."""
    found = {}
    for name in ("processor_config.json", "chat_template.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            try:
                found[name] = Fields(read_json(folder / name), str(folder / name), _wrong)
            except ValueError as error:
                raise _wrong(f"{folder / name} is not valid JSON ({error})") from error
    return found


def _templates(
    folder: Path, documents: Mapping[str, Fields], own: object, *, pictures: bool
) -> dict[str, str]:
    """The chat templates by the name of their file, the one that counts first. Raises BundleError
    where there is none.

    transformers has a template of the processor, which takes pictures, and one of the tokenizer,
    `own`; where several files have one, the order is that of its 5th version.
    """
    said = {name: fields.raw("chat_template") for name, fields in documents.items()}
    tokenizers = {"tokenizer_config.json": said.pop("tokenizer_config.json", None)}
    if (folder / "chat_template.jinja").is_file():
        tokenizers = {"chat_template.jinja": own, **tokenizers}
    else:
        tokenizers = {"tokenizer_config.json": own}
    ordered = {**said, **tokenizers} if pictures else {**tokenizers, **said}
    found = {name: template for name, template in ordered.items() if template is not None}
    if not found:
        raise _wrong(f"{folder} has no chat template")
    first = next(iter(found))
    return {
        name: _default_of(folder / name, template)
        for name, template in found.items()
        if name == first or isinstance(template, str)
    }


def _default_of(path: Path, template: object) -> str:
    """The template to use of those that a file names. Raises BundleError."""
    if isinstance(template, dict):
        template = template.get("default", sorted(template))
    if not isinstance(template, str):
        named = f", only {', '.join(map(str, template))}" if isinstance(template, list) else ""
        raise _wrong(f"{path} has no chat_template named 'default'{named}")
    return template


def _check_rendered(text: str, messages: Sequence[Message]) -> None:
    """Refuse what would keep the tokenizer busy for long, or is no text. A template writes the
    messages and a little around them."""
    given = sum(_length(part) for message in messages for part in message.values())
    most = _OWN_CHARACTERS + _OF_A_MESSAGE * len(messages) + 2 * given
    if len(text) > most:
        raise BundleError(
            f"the chat template wrote {len(text):,} characters for a conversation of {given:,}, "
            f"at most {most:,} make sense; export the bundle again"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BundleError(
            f"the chat template wrote U+{ord(text[error.start]):04X}, which is no character; "
            "export the bundle again"
        ) from error


def _length(part: object) -> int:
    """Characters of a message's part: a text, or a list of texts and pictures."""
    if isinstance(part, str):
        return len(part)
    parts = part.values() if isinstance(part, Mapping) else part
    return sum(map(_length, parts)) if isinstance(parts, Iterable) else 0


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Whatever a tokenizer or a template led its reader to raise, as one line; native code that
    panics raises what is no Exception."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        why = " ".join(str(error).split()) or type(error).__name__
        raise BundleError(f"{what}: {why}") from error


def _limit_memory() -> None:
    """Forbid more than `MEMORY` bytes beyond what there is now, where the system can."""
    import psutil  # noqa: PLC0415

    with suppress(OSError, ValueError):
        most = psutil.Process().memory_info().vms + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _answer(line: bytes, loaded: dict[tuple[str, bool], TokenizerFiles]) -> object:
    """What a request gives. Raises BundleError, MemoryError."""
    name, folder, pictures, seconds, arguments, options = json.loads(line)
    which = folder, pictures
    signal.setitimer(signal.ITIMER_PROF, seconds)  # its signal ends the process
    if name == "facts" or which not in loaded:
        loaded.pop(which, None)
        while len(loaded) >= _AT_ONCE:
            del loaded[next(iter(loaded))]
        loaded[which] = TokenizerFiles(Path(folder), pictures=pictures)
    return getattr(loaded[which], name)(*arguments, **options)


def main() -> None:
    """Serve until standard input ends."""
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # it would ask for torch
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no answer
    from transformers import PreTrainedTokenizerFast  # noqa: F401, PLC0415

    _limit_memory()
    loaded: dict[tuple[str, bool], TokenizerFiles] = {}
    for line in sys.stdin.buffer:
        try:
            reply = ["done", _answer(line, loaded)]
        except BundleError as error:
            reply = ["refused", [error.what, error.remedy and error.remedy.name]]
        except MemoryError:
            reply = ["refused", ["the bundle's chat template or tokenizer ran out of memory", None]]
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(json.dumps(reply).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
