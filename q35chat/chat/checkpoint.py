"""What a chat takes from the small files of a checkpoint: tokenizer and template, what ends an
answer, how tokens are chosen, how pictures are cut.

The one reader of their folder, for the chat and for an export, which refuses what the chat would.
Knows no graph.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from q35chat.chat.prompt.tokenizer import ChatTokenizer
from q35chat.chat.values import SamplingSettings
from q35chat.errors import BundleError, Remedy
from q35chat.json_reader import Fields, read_json
from q35chat.vision.rules import PictureRules

_LARGEST: Final = 1e9
_wrong: Final = partial(BundleError, remedy=Remedy.EXPORT_AGAIN)


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """Ids that end an answer, and how tokens are chosen if the user does not say."""

    stop_ids: frozenset[int]
    sampling: SamplingSettings

    @classmethod
    def read(cls, folder: Path) -> GenerationDefaults:
        """The defaults in `generation_config.json`; where there is none it is greedy and
        `config.json` names the ids, as transformers has it.

        Raises BundleError for a file that is not what it should be.
        """
        path = folder / "generation_config.json"
        if not path.is_file():
            return cls(_ends_of_model(folder / "config.json"), SamplingSettings(temperature=0.0))
        fields = _fields(path)
        sampling = SamplingSettings(
            temperature=fields.real("temperature", 1.0, least=0.0, most=_LARGEST),
            top_p=fields.real("top_p", 1.0, least=0.0, most=1.0),
            min_p=fields.real("min_p", 0.0, least=0.0, most=1.0),
            presence_penalty=fields.real("presence_penalty", 0.0, least=-_LARGEST, most=_LARGEST),
            repetition_penalty=fields.real(
                "repetition_penalty", 1.0, least=1 / _LARGEST, most=_LARGEST
            ),
        )
        if not fields.flag("do_sample", default=False):
            return cls(_ends(fields), replace(sampling, temperature=0.0))
        top_k = int(fields.real("top_k", 50, least=0, most=_LARGEST))
        return cls(_ends(fields), replace(sampling, top_k=top_k))


@dataclass(frozen=True, slots=True)
class ChatFiles:
    """The tokenizer with its template, the ids that end an answer, the sampling that is
    recommended, and the rules for pictures, None in a model that sees none."""

    tokenizer: ChatTokenizer
    stop_ids: frozenset[int]
    sampling: SamplingSettings
    rules: PictureRules | None

    @classmethod
    def read(cls, folder: Path, *, pictures: bool) -> ChatFiles:
        """Read the folder, the files for `pictures` only where the model sees them.

        An answer ends with any id that the generation defaults, the tokenizer or the template
        names: each of them is wrong in some checkpoints. Raises BundleError.
        """
        tokenizer = ChatTokenizer(folder, pictures=pictures)
        defaults = GenerationDefaults.read(folder)
        rules = PictureRules.read(folder) if pictures else None
        return cls(tokenizer, defaults.stop_ids | tokenizer.end_ids, defaults.sampling, rules)

    def takes_pictures(self, picture_id: int) -> bool:
        """Whether the template has a place for a picture in a question. Raises BundleError where it
        has one, and not with `picture_id`."""
        plain = self.conversation(picture=False)
        try:
            shown = self.conversation(picture=True)
        except BundleError:
            return False
        found = shown.count(picture_id)
        others = (set(shown) - set(plain)) & self.tokenizer.special_ids
        if found == 0 and others:
            raise BundleError(
                f"{self.tokenizer.template_files[0]}: the template writes "
                f"{' '.join(str(self.tokenizer.piece(token)) for token in sorted(others))} for a "
                f"picture, config.json says image_token_id {picture_id} "
                f"({self.tokenizer.piece(picture_id)})",
                Remedy.EXPORT_AGAIN,
            )
        return found == 1

    def conversation(self, *, picture: bool, thinking: bool = False) -> list[int]:
        """The ids of a conversation of two turns, with a picture in its first one. Raises
        BundleError."""
        shown = [{"type": "image"}, {"type": "text", "text": "a"}]
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": shown if picture else "a"},
            {"role": "assistant", "content": "b", "reasoning_content": ""},
            {"role": "user", "content": "c"},
        ]
        text = self.tokenizer.render(messages, generation_prompt=True, thinking=thinking)
        return self.tokenizer.encode(text)


def _fields(path: Path) -> Fields:
    """The fields of a file that are not null. Raises BundleError."""
    try:
        config = read_json(path)
    except (OSError, ValueError) as error:
        raise _wrong(f"cannot read {path}: {error}") from error
    if isinstance(config, dict):
        config = {name: value for name, value in config.items() if value is not None}
    return Fields(config, f"cannot read {path}: it", _wrong)


def _ends(fields: Fields) -> frozenset[int]:
    ends = fields.raw("eos_token_id")
    found = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if any(type(token) is not int for token in found):
        raise fields.wrong("eos_token_id", "a token id or a list of them", ends)
    return frozenset(found)


def _ends_of_model(path: Path) -> frozenset[int]:
    if not path.is_file():
        return frozenset()
    fields = _fields(path)
    return _ends(fields) or _ends(fields.section_or_empty("text_config"))
