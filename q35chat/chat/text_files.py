"""Files whose text goes into a question: read, written into it in a fence with their names, and
found there again.

A question with files is a text like any other: the model, the store and every export see what
stands there. Knows no screen and no model. A PDF is read in a process of its own, with limits.
"""

from __future__ import annotations

import re
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from q35chat.errors import FileError
from q35chat.file_kinds import attachable
from q35chat.processes import folder_of_children, python_command, python_environment
from q35chat.text import readable_size, safe_line

MOST_BYTES: Final = 1_000_000
"""Of a longer text the beginning is read; no bundle has room for more."""
_PDF_SECONDS: Final = 30
_PDF_CHILD: Final = "q35chat.chat.pdf_child"
_LEAST_FENCE: Final = 3
_LANGUAGES: Final = {
    "py": "python", "js": "javascript", "ts": "typescript", "md": "markdown", "rs": "rust",
    "rb": "ruby", "sh": "sh", "yml": "yaml", "h": "c", "hpp": "cpp", "cc": "cpp", "kt": "kotlin",
    "txt": "", "pdf": "",
}  # fmt: skip
_BLOCK: Final = re.compile(
    r"^File `(?P<name>[^`\n]+)`(?P<part> \([^)\n]*\))?:\n\n"
    r"(?P<fence>`{3,})[^`\n]*\n(?P<text>.*?)\n?(?P=fence)(?:\n\n|\n?\Z)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class TextFile:
    """The text of a file, its name, where it lies (for display and drafts; None where only a
    question has it), and in `part` what of it this is, where it is not the whole. `slots` is what
    its block takes in a question, once somebody has counted."""

    name: str
    text: str
    path: Path | None = None
    part: str = ""
    slots: int = 0

    @property
    def lines(self) -> int:
        """How many lines it has."""
        return self.text.count("\n") + 1

    @property
    def block(self) -> str:
        """The file as it stands in a question."""
        longest = max((len(run) for run in re.findall("`+", self.text)), default=0)
        fence = "`" * max(_LEAST_FENCE, longest + 1)
        part = f" ({self.part})" if self.part else ""
        suffix = Path(self.name).suffix.removeprefix(".").lower()
        language = _LANGUAGES.get(suffix, suffix if suffix.isalnum() else "")
        return f"File `{self.name}`{part}:\n\n{fence}{language}\n{self.text}\n{fence}"

    def beginning(self, share: float) -> TextFile:
        """So much of it, from 0 to 1, cut at the end of a line."""
        length = max(1, int(len(self.text) * share))
        cut = self.text.rfind("\n", 0, length) + 1 or length
        text = self.text[:cut].rstrip("\n")
        kept = text.count("\n") + 1
        return replace(self, text=text, part=f"the first {kept:,} of {self.lines:,} lines", slots=0)


def with_files(files: Sequence[TextFile], text: str) -> str:
    """A question about files: their blocks, then what is asked."""
    return "\n\n".join([*(file.block for file in files), *([text] if text else [])])


def split_files(question: str) -> tuple[tuple[TextFile, ...], str]:
    """The files at the beginning of a question, and what is asked."""
    files: list[TextFile] = []
    while block := _BLOCK.match(question):
        part = (block["part"] or "").strip(" ()")
        files.append(TextFile(block["name"], block["text"], part=part))
        question = question[block.end() :]
    return tuple(files), question


def read_text_file(path: Path) -> TextFile:
    """The text of a text file or a PDF. Raises FileError for a folder, for what is no text, and
    where nothing can be read."""
    name = safe_line(path.name).replace("`", "'") or "file"
    try:
        if path.is_dir():
            raise FileError(f"{name} is a folder; attach a file in it")
        kind = attachable(path)
        if kind == "PDF":
            return TextFile(name, _pdf_text(path, name), path)
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise FileError(f"{name} is a pipe or a device; attach a file")
        size = status.st_size
        if not size:
            raise FileError(f"{name} is empty")
        if kind != "text":
            raise FileError(
                f"{name} is no text in UTF-8 and no PDF; convert it, or attach another file"
            )
        with path.open("rb") as file:
            data = file.read(MOST_BYTES)
    except (OSError, ValueError) as error:  # no name has a null byte
        why = getattr(error, "strerror", None) or error
        raise FileError(f"{name} cannot be read: {why}") from error
    text = _decoded(data, name, whole=size <= MOST_BYTES)
    found = TextFile(name, text, path)
    if size > MOST_BYTES:
        first = f"the first {readable_size(MOST_BYTES)} of {readable_size(size)}"
        found = replace(found, part=first)
    return found


def _decoded(data: bytes, name: str, *, whole: bool) -> str:
    wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    try:
        text = data.decode("utf-16" if wide else "utf-8-sig", "strict" if whole else "ignore")
    except UnicodeDecodeError as error:
        at = f"byte {error.start:,} is 0x{data[error.start]:02x}"
        raise FileError(f"{name} is no text in UTF-8 ({at}); convert it") from error
    return text.replace("\r\n", "\n").replace("\r", "\n").strip("\n")


def _pdf_text(path: Path, name: str) -> str:
    """The text of a PDF. Raises FileError."""
    try:
        done = subprocess.run(
            python_command("-m", _PDF_CHILD, str(path.absolute())),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PDF_SECONDS,
            env=python_environment(),
            cwd=folder_of_children(),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise FileError(f"{name} took longer than {_PDF_SECONDS} s to read") from error
    if done.returncode:
        why = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise FileError(
            f"{name} cannot be read as a PDF: {safe_line(why) or 'its reader broke off'}"
        )
    text = done.stdout.decode("utf-8", "replace").strip()
    if not text:
        raise FileError(f"{name} has no text in it, perhaps only pictures of pages; attach those")
    return text
