"""What the command line and the form for an export call what a user sets, and how they say what
can be done.

The chat on the screen says it as the command line does, since it was started with options, too.
What the form offers by itself, as replacing a bundle that is in the way, it need not say.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from q35chat.errors import Option, Remedy, Words
from q35chat.processes import DEFAULT_OUT, program
from q35chat.text import quoted

if TYPE_CHECKING:
    from q35chat.bundle.manifest import Manifest


def _make_again(manifest: Manifest, folder: Path) -> str:
    from q35chat.commands.export_command import repair

    return repair(manifest, folder)


def _add_component(manifest: Manifest, folder: Path, component: str) -> str:
    from q35chat.commands.export_command import adding

    return adding(manifest, component, folder)


def _export_checkpoint(folder: Path) -> str:
    return f"export it: `{program()} export {quoted(str(folder))} --out {DEFAULT_OUT}`"


def _name_a_result() -> str:
    return f"name a file that {program()} bench --out wrote"


_OPTIONS: Final[Words] = {one: f"--{one.name.lower().replace('_', '-')}" for one in Option}
COMMAND_LINE: Final[Words] = {
    **_OPTIONS,
    Option.MODELSCOPE: "--source modelscope",
    Option.PLAIN: "chat --plain",
    Remedy.ADD_COMPONENT: _add_component,
    Remedy.ANOTHER_FOLDER: "choose another --out",
    Remedy.ANOTHER_REVISION: "check --revision",
    Remedy.DEVICE_IS_FULL: ("the device has no memory left: use --residency swap, or free the NPU"),
    Remedy.EMPTY_FOLDER: "choose another --out, or empty the folder yourself",
    Remedy.EXPORT_AGAIN: "export its model into this folder again, with --force",
    Remedy.EXPORT_CHECKPOINT: _export_checkpoint,
    Remedy.FOLDER_INSIDE: "give a folder inside it, such as --out {folder}",
    Remedy.FREE_SPACE: "free {missing} or choose another --out",
    Remedy.HEAD_OR_AUTO: "export it with --mtp, or use --speculate auto",
    Remedy.MAKE_AGAIN: _make_again,
    Remedy.MORE_PICTURE_TOKENS: "raise --max-image-tokens",
    Remedy.MOVE_AWAY: "move it away or choose another --out",
    Remedy.NAME_A_BUNDLE: "export one with {command}, or name a bundle with --model-dir",
    Remedy.NAME_A_RESULT: _name_a_result,
    Remedy.NO_COMPARISON: "close other programs, or export with --no-verify",
    Remedy.ONE_GRAPH: "export it with --one-graph, or use another --residency",
    Remedy.REPLACE_OR_ANOTHER_FOLDER: "add --force to replace it or choose another --out",
    Remedy.REPLACE_WHOLE: "use --component all with --force",
    Remedy.SMALLER_PICTURES: "lower --max-image-tokens, or export with larger --image-gears",
    Remedy.SWAP_OR_FREE: "use --residency swap, or free the NPU",
    Remedy.WITH_HEAD: "--mtp exports them",
}
FORM: Final[Words] = {
    Option.OUT: "the folder",
    Remedy.EXPORT_AGAIN: "replace it",
    Remedy.MAKE_AGAIN: "replace it",
    Remedy.REPLACE_OR_ANOTHER_FOLDER: "",
}
