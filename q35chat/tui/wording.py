"""What the form for an export calls its fields, and how it says what can be done there.

What it offers by itself, as replacing a bundle that is in the way, it need not say.
"""

from __future__ import annotations

from typing import Final

from q35chat.errors import Option, Remedy, Words

FORM: Final[Words] = {
    Option.OUT: "the folder",
    Remedy.EXPORT_AGAIN: "replace it",
    Remedy.MAKE_AGAIN: "replace it",
    Remedy.REPLACE_OR_ANOTHER_FOLDER: "",
}
