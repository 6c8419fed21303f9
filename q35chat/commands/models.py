"""`q35chat models`: the bundles that are here, by their names, and which one is used.

Loads no model.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from q35chat.commands import options as opt
from q35chat.commands.console import Console
from q35chat.commands.sessions import AsJson, print_json, print_line
from q35chat.errors import UsageError
from q35chat.processes import program
from q35chat.text import safe_line

if TYPE_CHECKING:
    from q35chat.bundle.library import Installed

models = typer.Typer(
    name="models",
    help="Models on this machine: list, choose, add, remove.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The model's name, as the list has it.")]


@models.command("list")
def list_models(as_json: AsJson = False, _debug: opt.Debug = False) -> int:
    """List the bundles in the models folder and out/; the one in use has a star."""
    from q35chat.bundle.library import installed, models_folder
    from q35chat.text import pluralise, readable_size

    console, found, used = Console.standard(), installed(), _used()
    if as_json:
        rows = [asdict(it) | {"path": str(it.path), "used": it.path == used} for it in found]
        return print_json(console, rows)
    for it in found:
        print_line(
            console,
            "*" if it.path == used else " ",
            f"{it.name:20}",
            f"{it.model:24}",
            f"{it.target}, {it.precision}",
            f"{pluralise(it.capacity, 'slot'):>14}",
            f"{readable_size(it.size):>10}",
        )
    if not found:
        where = f"`models add` moves it to {models_folder()}"
        console.note(f"no models yet; {program()} export makes one, {where}")
    return 0


@models.command("use")
def use_model(name: Name, _debug: opt.Debug = False) -> int:
    """Use a model from now on, where none is named: this is model_dir of the settings."""
    from q35chat.settings import change_settings, settings_path

    path = _known(name).path.absolute()
    change_settings({"model_dir": str(path)})
    Console.standard().note(f"{path} is used from now on, as {settings_path()} says")
    return 0


@models.command("add")
def add_model(
    folder: Annotated[Path, typer.Argument(parser=opt.path, help="The folder of a bundle.")],
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Default: the folder's own.")] = "",
    _debug: opt.Debug = False,
) -> int:
    """Move a bundle into the models folder, to be used by its name."""
    from q35chat.bundle.library import add

    place = add(folder, name or folder.absolute().name)
    print_line(Console.standard(), str(place))
    return 0


@models.command("rm")
def remove_model(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    _debug: opt.Debug = False,
) -> int:
    """Delete a model of the models folder for good."""
    from q35chat.bundle.library import remove
    from q35chat.text import readable_size

    console, found = Console.standard(), _known(name)
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise UsageError("models rm asks first; without a terminal give --yes")
        size = readable_size(found.size)
        console.err.write(f"Delete {safe_line(found.name)} ({size}) for good? [y/N] ")
        console.err.flush()
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            console.note("nothing was deleted")
            return 1
    remove(name)
    return 0


def _known(name: str) -> Installed:
    from q35chat.bundle.library import installed

    found = {it.name: it for it in installed()}
    if name not in found:
        known = ", ".join(found) or "none"
        raise UsageError(f"there is no model {safe_line(name)}; there is {safe_line(known)}")
    return found[name]


def _used() -> Path | None:
    """The folder of the bundle that is used where none is named."""
    from q35chat.commands.model import used_bundle
    from q35chat.settings import load_settings

    return used_bundle(load_settings())
