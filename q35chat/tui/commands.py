"""The one table of everything the application can do, and the keys that the user has given it.

Bindings, help, palette and slash commands are all made from it, so they cannot disagree.
`ChatScreen` runs a command by its id; nothing here knows how.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from textual.binding import Binding
from textual.keys import Keys

from q35chat.user_input import KeyStyle

When = Literal["always", "free", "idle", "chat"]
"""When a command can be run: `free` is while nothing loads and no turn runs, `idle` also needs a
conversation, `chat` needs no more than that one is there and no other on its way."""


@dataclass(frozen=True, slots=True)
class Command:
    """One thing to do: `id` names it in the settings file and in `do_<id>`; keys are defaults."""

    id: str
    title: str
    help: str
    group: str
    keys: str = ""
    slash: str = ""
    argument: str = ""
    when: When = "always"


CONVERSATION: Final = "Chat"
WRITING: Final = "Writing"
LOOKING: Final = "Reading and copying"
APPLICATION: Final = "Application"

COMMANDS: Final[tuple[Command, ...]] = (
    Command("stop", "Stop", "Take back a message that waits, or "
            "stop the answer; what was written stays", CONVERSATION, "escape"),
    Command("regenerate", "Regenerate", "Answer the last question again; the earlier answer "
            "stays as a version", CONVERSATION, "alt+r", "regenerate", when="idle"),
    Command("edit", "Edit and resend", "Change your last question; press again for earlier ones",
            CONVERSATION, "ctrl+e", "edit", when="idle"),
    Command("edit_answer", "Edit the answer", "Change the last answer and go on from it; press "
            "again for earlier ones", CONVERSATION, "alt+a", "editanswer", when="idle"),
    Command("proceed", "Continue the answer", "Go on with an answer that was stopped or cut",
            CONVERSATION, "ctrl+g", "continue", when="idle"),
    Command("branch_back", "Earlier version", "Show the version before this one",
            CONVERSATION, "alt+left", "earlier", when="idle"),
    Command("branch_forward", "Later version", "Show the version after this one",
            CONVERSATION, "alt+right", "later", when="idle"),
    Command("versions", "All versions", "The whole chat as a tree; Enter shows the version of a "
            "turn", CONVERSATION, "alt+up", "versions", when="idle"),
    Command("drop_oldest", "Leave out the oldest turns", "The model no longer reads the oldest "
            "question and answer, or N of them; that frees slots", CONVERSATION, "", "drop", "N",
            when="idle"),
    Command("summarise", "New chat from a summary", "The model sums this one up and a "
            "new one starts from that", CONVERSATION, "", "summarise", when="idle"),
    Command("new", "New chat", "Start afresh; this one stays in the list",
            CONVERSATION, "ctrl+n", "new", when="idle"),
    Command("sessions", "Chats", "Search, open, rename, tag, pin and delete chats",
            CONVERSATION, "ctrl+l", "sessions", when="idle"),
    Command("thinking", "Thinking", "Off, on, or on with a budget of tokens",
            CONVERSATION, "ctrl+t", "think", "off|on|N", when="chat"),
    Command("model", "Model", "Let another model answer from now on, in this chat",
            CONVERSATION, "", "model", "NAME", when="idle"),
    Command("compare", "Compare two models", "Ask another model the last question, and see both "
            "answers side by side; either is kept", CONVERSATION, "", "compare", "NAME",
            when="idle"),
    Command("persona", "Persona", "Go on with a persona of the settings file: its system prompt, "
            "sampling and thinking", CONVERSATION, "", "persona", "NAME", when="chat"),
    Command("recall", "Earlier questions", "Search your questions of all chats; Enter puts one "
            "into the message", WRITING, "ctrl+r", "recall", "WORDS"),
    Command("edit_outside", "Write in an editor", "Open the message in $VISUAL or $EDITOR, also "
            "with Ctrl+X Ctrl+E", WRITING, "", "editor"),
    Command("attach", "Attach a picture or a file", "Choose one with a preview; of a text or a PDF "
            "the words go into the question", WRITING, "ctrl+o", "file", "PATH"),
    Command("attach_picture", "Attach a picture", "The same as /file", WRITING, "", "image",
            "PATH"),
    Command("reasoning", "Show or hide the reasoning", "Open the reasoning of the answers on "
            "screen, or fold it", LOOKING, "f12", "reasoning"),
    Command("meters", "Show or hide the meters", "All meters beside the chat, or only a line of "
            "them", LOOKING, "ctrl+s", "meters"),
    Command("details", "Show or hide what a step is made of", "The meters also tell the time "
            "inside the runtime and outside of it; stays as it is left", LOOKING, "alt+s",
            "details"),
    Command("copy_answer", "Copy the answer", "The last answer as Markdown, to the clipboard",
            LOOKING, "f3", "copy"),
    Command("copy_code", "Copy a code block", "Choose one of the code blocks; the newest answer's "
            "come first", LOOKING, "f4", "code", "N"),
    Command("copy_chat", "Copy the chat", "Copy the whole chat as Markdown",
            LOOKING, "", "copychat"),
    Command("export", "Export to Markdown", "Write the chat to a folder, pictures beside "
            "it", LOOKING, "", "export", "FOLDER"),
    Command("follow", "Go to the end", "Scroll to the newest text and follow it",
            LOOKING, "ctrl+end", "end"),
    Command("scroll_up", "Scroll up", "One page towards the beginning", LOOKING, "pageup"),
    Command("scroll_down", "Scroll down", "One page towards the end", LOOKING, "pagedown"),
    Command("earliest", "Load earlier turns", "Show turns before the first one on screen",
            LOOKING, "ctrl+home", "more"),
    Command("setup", "Get a real model", "Export a checkpoint here, then open it",
            APPLICATION, "f9", "setup", when="free"),
    Command("settings", "Settings", "Sampling, system prompt, limits, theme",
            APPLICATION, "f2", "settings", when="chat"),
    Command("help", "Help", "All keys and commands", APPLICATION, "f1", "help"),
    Command("palette", "Command palette", "Find any command, setting or theme by name",
            APPLICATION, "ctrl+p"),
    Command("quit", "Quit", "Everything is already saved", APPLICATION, "ctrl+q", "quit"),
)  # fmt: skip

BY_ID: Final = {command.id: command for command in COMMANDS}
BY_SLASH: Final = {command.slash: command for command in COMMANDS if command.slash}

COMPOSER_KEYS: Final[tuple[tuple[str, str], ...]] = (
    ("enter", "Send; while an answer is being written, after it"),
    ("ctrl+j", "New line, like Alt+Enter; like Shift+Enter where the terminal can tell it"),
    ("up", "In an empty message: your earlier questions, of this chat first; Down goes back"),
    ("@", "Complete a path; pictures, texts and PDFs become attachments"),
    ("/", "Complete a command"),
    ("backspace", "In an empty message: remove the last attachment"),
    ("ctrl+c", "Copy the selection; never clears. Twice in an empty message: leave, like Ctrl+D"),
    ("ctrl+v", "Paste what the clipboard holds; a picture becomes an attachment"),
)

READLINE_HAS: Final = {"edit": "alt+e", "new": "alt+n", "palette": "alt+p", "thinking": "alt+t"}
"""Commands whose keys readline has in the message, and their keys where it does."""

PANEL_KEYS: Final = ("f5", "f6", "f7", "f8")


def screen_bindings() -> list[Binding]:
    """The bindings of the chat screen; each id can be given other keys in the settings file.

    A command without a key has a name in its place that no key has, so that it can be given one.
    """
    return [
        Binding(
            command.keys or f"no-key-{command.id}",
            f"command('{command.id}')",
            command.title,
            id=command.id,
            show=False,
            priority=command.id != "stop",
        )
        for command in COMMANDS
    ]


def panel_bindings() -> list[Binding]:
    """The keys of the choices that a panel offers."""
    return [
        Binding(key, f"choose({index})", "Choose", show=False, priority=True)
        for index, key in enumerate(PANEL_KEYS)
    ]


_LABELS: Final = {
    "escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn", "enter": "Enter", "delete": "Del"
}  # fmt: skip


def key_label(keys: str) -> str:
    """How keys are written for people: `ctrl+r` is `Ctrl+R`, `escape` is `Esc`."""
    first = keys.split(",", maxsplit=1)[0]
    return "+".join(_LABELS.get(part, part[:1].upper() + part[1:]) for part in first.split("+"))


def key_named(label: str) -> str:
    """The key that is written so for people; empty where it is none."""
    names = {words: key for key, words in _LABELS.items()}
    *modifiers, last = (names.get(part, part.lower()) for part in label.split("+"))
    is_key = last in _NAMED or (len(last) == 1 and bool(modifiers))
    return "+".join((*modifiers, last)) if is_key and _MODIFIERS.issuperset(modifiers) else ""


def parse_slash(text: str) -> tuple[Command, str] | None:
    """The command and argument of a single line like `/think 512`; None if it is no command."""
    line = text.strip()
    if not line.startswith("/") or "\n" in line:
        return None
    name, _, argument = line[1:].partition(" ")
    command = BY_SLASH.get(name.lower())
    return None if command is None else (command, argument.strip())


_MODIFIERS: Final = frozenset({"ctrl", "shift", "alt", "meta", "super", "hyper"})
_NAMED: Final = frozenset(key.value for key in Keys if "+" not in key.value)
_TAKEN: Final = frozenset(
    {*PANEL_KEYS, "enter", "tab", "up", "down", "left", "right", "backspace", "delete", "ctrl+c",
     "ctrl+j", "shift+enter", "alt+enter"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Keymap:
    """`own` are the keys that replace defaults, by command id; `problems` are for the user.
    `style` is whose keys the message has."""

    own: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    style: KeyStyle = "usual"

    def keys(self, command: Command) -> str:
        """The keys of a command, separated by commas; empty when it has none."""
        if command.id in self.own:
            return self.own[command.id]
        taken = {key for keys in self.own.values() for key in keys.split(",")}
        return ",".join(key for key in command.keys.split(",") if key not in taken)

    def label(self, command_id: str) -> str:
        """The first key of a command, as it is written for people."""
        keys = self.keys(BY_ID[command_id])
        return key_label(keys) if keys else ""


def read_keymap(written: Mapping[str, str], style: KeyStyle = "usual") -> Keymap:
    """The `[keys]` of the settings file: command names, with or without slash, and their keys, in
    place of the defaults that go with a style."""
    own: dict[str, str] = {}
    owner: dict[str, str] = {}
    problems: list[str] = []
    for name, text in written.items():
        command = BY_ID.get(name) or BY_SLASH.get(name.removeprefix("/"))
        keys = [key.strip().lower() for key in text.split(",") if key.strip()]
        wrong = [_trouble(key, owner) for key in keys]
        if command is None:
            problems.append(f"keys: there is no command “{name}”; F1 lists them")
        elif not keys or any(wrong):
            trouble = next((words for words in wrong if words), "no key is given")
            problems.append(f"keys: {name} = “{text}” is not used, {trouble}")
        else:
            own[command.id] = ",".join(keys)
            owner |= dict.fromkeys(keys, name)
    if style == "readline":
        moved = {name: key for name, key in READLINE_HAS.items() if key not in owner}
        own = {**moved, **own}
    return Keymap(own, tuple(problems), style)


def _trouble(key: str, owner: Mapping[str, str]) -> str:
    """Why a key cannot be given to a command; empty when it can."""
    *modifiers, last = key.split("+")
    if key in owner:
        return f"{key_label(key)} is for {owner[key]} already"
    if key in _TAKEN:
        return f"{key_label(key)} means something else while you write"
    if not _MODIFIERS.issuperset(modifiers) or not (len(last) == 1 or last in _NAMED):
        return f"“{key}” is no key; write it like ctrl+r or f9"
    if last == "space" or (len(last) == 1 and not {"ctrl", "alt"} & set(modifiers)):
        return f"“{key}” could not be typed any more"
    return ""
