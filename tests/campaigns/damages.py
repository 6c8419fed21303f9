"""`python -m tests.campaigns.damages [--count N] [--seed S]`: files that people have, damaged, and
requests to a server.

Each input is a good file with bytes changed, cut, put in or taken out, and is read by what reads it
in the product. Good is an answer or one line of our own errors, in a second and without anything a
terminal would obey; everything else is a finding.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import numpy as np

from q35chat import settings
from q35chat.bundle.bundle import MANIFEST_NAME, Bundle
from q35chat.chat import pdf_child
from q35chat.chat.prompt.tokenizer import ChatTokenizer
from q35chat.chat.text_files import read_text_file, split_files, with_files
from q35chat.errors import Q35Error
from q35chat.states.file import Array, read_state, write_state
from q35chat.store import Store
from q35chat.store.opening import NAME
from q35chat.text import safe_line
from q35chat.tui.chat.drafts import Drafts
from q35chat.vision.loading import decode, header, read_file
from q35export.checkpoint import Checkpoint
from q35export.config import load_config
from q35export.processor import processor_files
from tests.campaigns.requests import NAMES as REQUESTS
from tests.campaigns.requests import Served
from tests.export.bundles import write_sample_bundle
from tests.store.damages import fill
from tests.support.checkpoints import make_checkpoint
from tests.support.pdf import pdf
from tests.vision.files import sample

LONGEST_S: Final = 20.0
_TOLD: Final = 1000


@dataclass(frozen=True)
class Kind:
    """A folder of good files, those of them that are damaged, and what reads them. The reader of a
    file that may say that it is none raises one of `others`, too; it finds the damaged file `alone`
    where the files have nothing to do with each other. `last` is what is wrong after all of them.
    """

    make: Callable[[Path], object]
    names: tuple[str, ...]
    read: Callable[[Path], object]
    others: tuple[type[Exception], ...] = ()
    alone: bool = False
    last: Callable[[Path], list[str]] = lambda _: []


def _picture(kind: str) -> Kind:
    name = f"cat.{kind.lower()}"

    def read(folder: Path) -> object:
        data = read_file(folder / name)
        return header(data, name), decode(data, name).size

    return Kind(lambda folder: (folder / name).write_bytes(sample(kind)), (name,), read)


def _read_store(folder: Path) -> None:
    with Store(folder) as store:
        for session in store.listed():
            store.load(session.id)
            store.markdown(session.id)
            store.json(session.id)
        store.search("cat")
        store.sweep()
        one_line(store.message)


def _read_checkpoint(folder: Path) -> None:
    config = load_config(folder)
    processor_files(folder, config, one_line)
    for remark in Checkpoint.open(folder).check(config, ("text", "vision")):
        one_line(remark)


def _read_tokenizer(folder: Path) -> None:
    tokenizer = ChatTokenizer(folder)
    message = {"role": "user", "content": "What is it?"}
    tokenizer.encode(tokenizer.render([message], generation_prompt=True, thinking=False))


def _write_states(folder: Path) -> None:
    state: Array = np.ones((4, 8), np.float16)
    arrays: list[tuple[str, Array]] = [("keys", np.arange(64)), ("state", state)]
    write_state(folder / "state", arrays, lambda _: True)


def _attached(name: str, *data: bytes) -> Kind:
    """Files whose text goes into a question, which must have it whole."""
    names = tuple(f"{number}-{name}" for number in range(len(data)))

    def make(folder: Path) -> None:
        for one, content in zip(names, data, strict=True):
            (folder / one).write_bytes(content)

    def read(folder: Path) -> None:
        with patch.object(subprocess, "run", _forked):
            file = read_text_file(next(folder.iterdir()))
        (found,), asked = split_files(with_files([file], "What is it?"))
        if (found.name, found.text.strip("\n"), asked) != (
            file.name,
            file.text.strip("\n"),
            "What is it?",
        ):
            raise AssertionError(f"the question has {found} of {file}")

    return Kind(make, names, read, alone=True)


def _forked(command: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
    """What the reader of PDFs says, in a fork: it need not be started and imported anew."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sys.stdout, sys.stderr = (
                os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace")
                for number in (1, 2)
            )
            code = pdf_child.main(command[-1])
            sys.stderr.flush()
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(command, code, out.read(), err.read())


_WORDS: Final = "Dear reader,\n\n```python\nx = 'Grüße, 你好'\n```\n\tthe end 👋🏽\n" * 4
_SERVED: Final = Served()
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
KINDS: Final[dict[str, Kind]] = {
    **{kind: _picture(kind) for kind in ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF")},
    "store": Kind(fill, (NAME,), _read_store),
    "checkpoint": Kind(
        make_checkpoint,
        ("config.json", "model.safetensors", "tokenizer_config.json", "preprocessor_config.json"),
        _read_checkpoint,
    ),
    "tokenizer": Kind(make_checkpoint, _TOKENIZER, _read_tokenizer),
    "bundle": Kind(
        write_sample_bundle,
        (MANIFEST_NAME, "text/model.onnx"),
        lambda folder: Bundle.open(folder, check="full"),
    ),
    "PDF": _attached(
        "paper.pdf", pdf("Hello in a PDF"), pdf("Another", packed=True), pdf("one (two) three" * 9)
    ),
    "text": _attached("notes.md", _WORDS.encode(), _WORDS.encode("utf-16")),
    "HTTP": Kind(_SERVED.make, REQUESTS, _SERVED.read, alone=True, last=_SERVED.last),
    "settings": Kind(
        lambda folder: (folder / "config.toml").write_text('theme = "q35-dark"\nthinking = true\n'),
        ("config.toml",),
        lambda folder: settings.load_settings(folder / "config.toml"),
    ),
    "drafts": Kind(
        lambda folder: (folder / "drafts.json").write_text('{"new": "a draft", "c1": "another"}'),
        ("drafts.json",),
        lambda folder: Drafts(folder / "drafts.json").get("new"),
    ),
    "states": Kind(
        _write_states,
        ("state",),
        lambda folder: {name: array.sum() for name, array in read_state(folder / "state").items()},
        (ValueError,),
    ),
}


def one_line(text: str) -> None:
    """Raises AssertionError for words that are no line, or that steer a terminal."""
    if safe_line(text, len(text)) != text:
        raise AssertionError(f"no line: {text!a}")


def damaged(data: bytes, chance: random.Random) -> bytes:
    """`data` with something of it changed, cut off, put in, taken out, or said twice."""
    made = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 5, 40))):
        at = chance.randrange(len(made) + 1)
        length = chance.choice((1, 1, 4, 64, 1000))
        match chance.randrange(6):
            case 0:
                made[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del made[at:]
            case 2:
                del made[at : at + length]
            case 3:
                made[at:at] = chance.randbytes(length)
            case 4:
                made[at : at + length] = bytes([chance.choice((0, 0xFF, 0x1B, 0x39))]) * length
            case _:
                made[at:at] = made[at : at + length]
    return bytes(made)


def attack(kind: Kind, good: Path, folder: Path, chance: random.Random) -> str:
    """Damage one file of a copy and read it; what is wrong with that, or nothing."""
    name = chance.choice(kind.names)
    if kind.alone:
        folder.mkdir()
    else:
        shutil.copytree(good, folder)
    (folder / name).write_bytes(damaged((good / name).read_bytes(), chance))
    start = time.monotonic()
    try:
        kind.read(folder)
    except Q35Error as error:
        try:
            one_line(str(error).replace(str(folder), ""))
        except AssertionError as wrong:
            return f"{name}: {wrong}"
    except kind.others:
        pass
    except Exception as error:  # noqa: BLE001 - which is what is looked for
        return f"{name}: {type(error).__name__}: {safe_line(str(error))}"
    taken = time.monotonic() - start
    return f"{name}: {taken:.0f} s" if taken > LONGEST_S else ""


def run(count: int, seed: int, place: Path, kinds: tuple[str, ...] = tuple(KINDS)) -> list[str]:
    """`count` damaged inputs, of each kind in turn; what was found, with the input that shows it
    kept below `place`."""
    found: list[str] = []
    for kind in kinds:
        (place / "good" / kind).mkdir(parents=True)
        KINDS[kind].make(place / "good" / kind)
    for number in range(count):
        kind, chance = kinds[number % len(kinds)], random.Random(f"{seed} {number}")
        folder = place / f"{number}-{kind}"
        said = attack(KINDS[kind], place / "good" / kind, folder, chance)
        if said:
            found.append(f"input {number}, {kind}: {said}; kept in {folder}")
        else:
            shutil.rmtree(folder)
        if (number + 1) % _TOLD == 0:
            sys.stdout.write(f"{number + 1} of {count}, {len(found)} findings\n")
            sys.stdout.flush()
    for kind in kinds:
        found += [f"{kind}: {line}" for line in KINDS[kind].last(place / "good" / kind)]
    return found


def main() -> int:
    """The campaign."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=list(KINDS), choices=list(KINDS))
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="q35-damages-"))
    found = run(options.count, options.seed, place, tuple(options.only))
    sys.stdout.write("".join(f"{line}\n" for line in found))
    sys.stdout.write(f"{options.count} damaged inputs, {len(found)} findings\n")
    if not found:
        shutil.rmtree(place)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
