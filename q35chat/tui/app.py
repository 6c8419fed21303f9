"""The application: themes, settings, copying, and the one chat screen.

`run` is how the command line starts it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, runtime_checkable

from rich.segment import Segments
from textual.app import App, ScreenStackError, SuspendNotSupported
from textual.css.query import NoMatches
from textual.dom import NoScreen
from textual.driver import Driver
from textual.filter import LineFilter
from textual.worker import WorkerFailed

from q35chat.chat.workspace import Workspace
from q35chat.errors import ScreenError, UsageError
from q35chat.settings import Settings, change_settings
from q35chat.tui import clipboard_reading, garbage, notices
from q35chat.tui.chat.drafts import Drafts
from q35chat.tui.clipboard import Copied, copy
from q35chat.tui.clipboard_reading import Held
from q35chat.tui.commands import read_keymap
from q35chat.tui.images.graphics import PictureDisplay, inspect_terminal
from q35chat.tui.images.painting import PictureFile
from q35chat.tui.images.terminal_query import Answers, ask
from q35chat.tui.screens.chat import ChatScreen, Opening
from q35chat.tui.screens.palette import CommandTable, Palette
from q35chat.tui.terminal import HARMLESS, PatientDriver, apart, driver_for, log_path
from q35chat.tui.text import clean, one_line
from q35chat.tui.themes import HOUSE_THEMES
from q35chat.tui.widgets.messages import Messages, Severity
from q35chat.tui.workers import WorkerThreads
from q35chat.user_input import GraphicsPreference

if TYPE_CHECKING:
    from q35chat.tui.exporting import Exporter
    from q35chat.tui.outside import Written

_HERE = Path(__file__).parent
_CHAT_STYLES: Final = sorted([*_HERE.glob("widgets/*.tcss"), _HERE / "screens/chat.tcss"])
# What a handler meets whose screen, or its part, has been taken down.
_GONE: Final = (NoMatches, NoScreen, ScreenStackError)
_ANSWERS_S: Final = 0.5
_TWICE_S: Final = 2.0
_DIALOG_STYLES: Final = (_HERE / "screens/dialogs.tcss", _HERE / "screens/setup.tcss")


@runtime_checkable
class AsksFirst(Protocol):
    """A screen that may have to ask before the application is left."""

    def asks_first(self) -> bool:
        """Whether it asks now, and the application stays."""


class ChatApp(App[None]):
    """Starts with a chat screen and stays there."""

    TITLE = "q35chat"
    CSS_PATH: ClassVar[list[str | Path]] = [*_CHAT_STYLES]  # type: ignore[assignment]
    COMMANDS = {CommandTable}  # noqa: RUF012
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "no-key-of-its-own"  # the chat's, which a user may have given another

    def get_driver_class(self) -> type[Driver]:
        """Textual's own, which waits where keys come faster than they are done with."""
        return driver_for(super().get_driver_class())

    def __init__(
        self,
        workspace: Workspace,
        opening: Opening,
        settings: Settings,
        drafts: Drafts,
        picture_display: PictureDisplay | None = None,
        exporter: Exporter | None = None,
        problems: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.settings = settings
        self.picture_display = picture_display or PictureDisplay(settings.pictures)
        self.keymap = read_keymap(settings.shortcuts, settings.keys)
        self.exporter = exporter
        self._problems = problems
        self.failure: BaseException | None = None
        self._last_interrupt = -_TWICE_S
        self._window = ""
        self._key_before = ""
        self._chat = ChatScreen(workspace, opening, drafts)
        for theme in HOUSE_THEMES:
            self.register_theme(theme)
        if settings.theme in self.available_themes:
            self._begin_with(settings.theme)

    def _begin_with(self, theme: str) -> None:
        """Wear a theme before any style is read: a change later reads and applies all again."""
        self.set_reactive(App.theme, theme)
        self.stylesheet.set_variables(self.get_css_variables())
        dark = self.current_theme.dark
        for name, worn in (("-dark-mode", dark), ("-light-mode", not dark)):
            self.set_class(worn, name, update=False)
        self.add_class(f"-theme-{theme}", update=False)
        self._refresh_truecolor_filter(self.ansi_theme)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's own, and that nothing drawn is obeyed by the terminal."""
        return [*super().get_line_filters(), HARMLESS]

    def on_mount(self) -> None:
        """Apply the settings and show the chat."""
        self.set_keymap(dict(self.keymap.own))
        self._chat.expect(self.size)
        self.push_screen(self._chat)
        for problem in (*self._problems, *self.keymap.problems):
            self.notify(problem, severity="warning", markup=False)

    def painted(self) -> None:
        """The chat is on screen: go on with what its first paint did not wait for."""
        for path in _DIALOG_STYLES:
            self.stylesheet.add_source(path.read_text("utf-8"), read_from=(str(path), ""))
        if self.screen is not self._chat:  # a key was faster
            self.refresh_css(animate=False)
        garbage.resume()

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: Severity = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """Say something in the lines that the screen on top has for it; else in a corner.

        `title` is not shown there: a newer message of the same title takes the place of this one.
        """
        messages = getattr(self.screen, "messages", None)
        if isinstance(messages, Messages):
            messages.say(message, severity, about=title)
        else:
            super().notify(message, title=title, severity=severity, timeout=timeout, markup=markup)

    async def _check_bindings(self, key: str, priority: bool = False) -> bool:
        """Do what a key is bound to, once the screen that it is for is there as a whole."""
        await self.screen._mounted_event.wait()
        if priority and self._is_chord(key):
            self._chat.composer.editor.call_later(self._chat.run_command, "edit_outside")
            return True
        return await super()._check_bindings(key, priority)

    def _is_chord(self, key: str) -> bool:
        """Whether this is the second key of Ctrl+X Ctrl+E in the message."""
        before, self._key_before = self._key_before, key
        writing = self.screen is self._chat and self.focused is self._chat.composer.editor
        return writing and (before, key) == ("ctrl+x", "ctrl+e")

    def _handle_exception(self, error: Exception) -> None:
        """What a handler misses because the application is being left is no error."""
        cause = error.error if isinstance(error, WorkerFailed) else error
        if not (self._exit and isinstance(cause, _GONE)):
            self.failure = self.failure or cause
            super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """End, and say where that was, without the values of variables: they may be what the user
        wrote, and what is said here is kept in the log."""
        from rich.traceback import Traceback  # noqa: PLC0415

        trace = self.console.render(Traceback(), self.console.options)
        self._exit_renderables.append(Segments(trace))
        self._close_messages_no_wait()

    def panic(self, *renderables: Any) -> None:
        """Whoever ends the application so has failed."""
        self.failure = self.failure or RuntimeError("a part of the application cannot go on")
        super().panic(*renderables)

    def choose_theme(self, theme: str) -> None:
        """Use a theme from now on."""
        self.theme = theme
        self._keep(theme=theme)

    def choose_details(self, details: bool) -> None:
        """Have the meters show what a step is made of, or no longer."""
        self._keep(details=details)

    def choose_pictures(self, preference: GraphicsPreference) -> None:
        """Draw pictures another way from now on."""
        from q35chat.tui.widgets.picture import Picture  # noqa: PLC0415

        self.picture_display.preference = preference
        for screen in self.screen_stack:
            for picture in screen.query(Picture):
                picture.redraw()
        self._keep(pictures=preference)

    def _keep(self, **changes: Any) -> None:
        """Change settings, also in their file. What is wrong in it stays."""
        self.settings = replace(self.settings, **changes)
        try:
            change_settings(changes)
        except UsageError as error:
            text = f"Changed until you leave, not saved: {error}"
            self.notify(text, severity="warning", markup=False)

    def copy(self, text: str, what: str) -> None:
        """Copy a text by every way that fits, and say what came of it."""

        def work() -> None:
            copied = copy(text, what, os.environ)
            self.call_later(self._copied, copied)

        self.run_worker(work, thread=True, group="copy")

    def copy_to_clipboard(self, text: str) -> None:
        """Copy a selection."""
        self._clipboard = text
        self.copy(text, "the selection")

    def name_window(self, text: str) -> None:
        """Show a text as the title of the terminal's window."""
        if text != self._window and self._driver is not None:
            self._driver.write(notices.title(text) if self._window else
                               f"{notices.KEEP_TITLE}{notices.title(text)}")  # fmt: skip
            self._window = text

    def tell(self, text: str) -> None:
        """Say that something is done, where the window has not the focus and the user wants it."""
        if self._driver is not None and not self.app_focus and self.settings.notify:
            self._driver.write(notices.notice(text, os.environ))

    def bring_back_title(self) -> None:
        """The window has the title that it had, once the application has ended."""
        if self._window and sys.__stderr__ is not None:
            with suppress(OSError):  # the terminal may be gone
                sys.__stderr__.write(notices.BRING_BACK_TITLE)
                sys.__stderr__.flush()

    def read_clipboard(self, then: Callable[[Held | None], None]) -> None:
        """Ask the desktop, else the terminal, for what its clipboard holds."""

        def work() -> None:
            self.call_later(found, clipboard_reading.read(os.environ))

        def found(held: Held | None) -> None:
            driver = self._driver
            if held is not None or not isinstance(driver, PatientDriver):
                then(held)
                return
            driver.ask_clipboard(lambda text: then(Held(text)))
            self.set_timer(_ANSWERS_S, partial(give_up, driver))

        def give_up(driver: PatientDriver) -> None:
            if driver.stop_asking():
                then(None)

        self.run_worker(work, thread=True, group="paste")

    def edit_outside(self, text: str) -> Written:
        """Give the terminal to the user's editor until it has ended, with a text to change."""
        from q35chat.tui.outside import Written, write_outside  # noqa: PLC0415

        try:
            with self.suspend():
                return write_outside(text, os.environ)
        except SuspendNotSupported:
            return Written(text, "This terminal cannot be given to another program")

    def _copied(self, copied: Copied) -> None:
        if copied.sequence and self._driver is not None:
            self._driver.write(copied.sequence)
        self.notify(
            copied.message,
            severity="information" if copied.certain else "warning",
            markup=False,
        )

    async def action_quit(self) -> None:
        """Leave the way the chat screen leaves, unless an export asks first."""
        if any(isinstance(it, AsksFirst) and it.asks_first() for it in self.screen_stack):
            return
        editor = self._chat.composer.editor if self._chat.is_mounted else None
        if editor is not None and editor.is_running:
            taken_in = asyncio.Event()  # the keys and pastes before; those after it wait
            editor.call_later(taken_in.set)
            await taken_in.wait()
        await self._chat.run_command("quit")

    def action_command_palette(self) -> None:
        """Find a command of the chat by name; over a dialog there are none."""
        if isinstance(self.screen, ChatScreen):
            self.push_screen(Palette())

    def action_help_quit(self) -> None:
        """Ctrl+C without a selection: a second one, where nothing is written, leaves."""
        before, self._last_interrupt = self._last_interrupt, time.monotonic()
        empty = self._chat.is_mounted and self._chat.composer.empty
        if empty and self._last_interrupt - before < _TWICE_S:
            self.call_later(self.action_quit)
            return
        ways = "Ctrl+C again or Ctrl+Q leaves" if empty else "Ctrl+Q leaves"
        self.notify(f"{ways}, Esc stops an answer", markup=False)


def run(
    workspace: Workspace,
    settings: Settings,
    *,
    conversation_id: str | None = None,
    images: Sequence[Path] = (),
    prompt: str = "",
    pictures: GraphicsPreference | None = None,
    exporter: Exporter | None = None,
    problems: Sequence[str] = (),
) -> int:
    """Run the application until it is left; the exit code of the program.

    `pictures` is for this run and wins over the settings; `problems` are told. Raises ScreenError
    where the application ended by a mistake of its own: its own words about that are in the log.
    """
    typed: list[str] = []

    def ask_terminal() -> Answers:
        if sys.__stdin__ is None or sys.__stderr__ is None:
            return Answers()
        answers = ask(sys.__stdin__.fileno(), sys.__stderr__.fileno())
        typed.append(answers.typed)
        return answers

    terminal = inspect_terminal(os.environ, ask_terminal)
    display = PictureDisplay(pictures or settings.pictures, terminal)
    opening = Opening(conversation_id, tuple(images), clean(prompt + "".join(typed)))
    app = ChatApp(workspace, opening, settings, Drafts.at_home(), display, exporter, problems)

    with apart(log_path(), lambda screen: PictureFile(screen, display)):
        asyncio.run(_run(app))
        app.bring_back_title()
    if app.failure is not None:
        what = one_line(f"{type(app.failure).__name__}: {app.failure}", 200)
        raise ScreenError(
            f"the chat had to end: unexpected {what}; where it was is in {log_path()}"
        ) from app.failure
    return app.return_code or 0


async def _run(app: ChatApp) -> None:
    """Until the user leaves, or somebody ends the process and the terminal is given back first."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(WorkerThreads())
    for ending in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(ending) != signal.SIG_IGN:  # as SIGHUP is under nohup
            loop.add_signal_handler(ending, app.exit, None, 128 + ending)
    await app.run_async()
