"""A group whose commands are made when one is asked for: the chat must not wait for the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, ClassVar, cast

import typer
from typer.core import TyperGroup
from typer.main import get_command

Made = Callable[..., int] | typer.Typer


class Group(TyperGroup):
    """`makers` give the function of a command, or a group of its own, by name."""

    makers: ClassVar[Mapping[str, Callable[[], Made]]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = cast("Any", _OnDemand(self.makers))

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002  (typer's own context)
        """Names in the order of the makers; none is made for it."""
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        """The command that the first of `args` names. Raises a usage error."""
        try:
            return super().resolve_command(ctx, args)
        except typer.TyperException as error:
            word = args[0]
            advice = self.advice()
            if advice and word[:1] != "-" and not get_close_matches(word, self.makers):
                error.message = f"{error.message.rstrip('.')}; {advice}"
            raise

    def advice(self) -> str:
        """What to say of a word that is no command and resembles none; nothing by default."""
        return ""


class _OnDemand(Mapping[str, Any]):
    """Commands by name, each made when it is first looked up."""

    def __init__(self, makers: Mapping[str, Callable[[], Made]]) -> None:
        self._makers = makers
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401  (typer's own command)
        if name not in self._made:
            self._made[name] = _command(name, self._makers[name]())
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def _command(name: str, made: Made) -> Any:  # noqa: ANN401
    if isinstance(made, typer.Typer):
        return get_command(made)
    alone = typer.Typer(
        rich_markup_mode="rich", pretty_exceptions_enable=False, add_completion=False
    )
    alone.command(name)(made)
    return get_command(alone)
