"""What the form for an export calls its fields, and how it says what can be done there.

What it offers by itself, as replacing a bundle that is in the way, it need not say.
"""

from __future__ import annotations

from typing import Final

from q35chat.errors import Option, Remedy, Words

FORM: Final[Words] = {
    Option.MAX_SEQ_LEN: "capacity",
    Option.OUT: "the folder",
    Option.PRECISION: "precision",
    Remedy.ANOTHER_NETWORK: (
        "check the network, set HF_ENDPOINT to a mirror, use ModelScope, or give a local folder"
    ),
    Remedy.ANOTHER_PRECISION: "leave it out, or choose another precision",
    Remedy.EXPORT_AGAIN: "replace it",
    Remedy.MAKE_AGAIN: "replace it",
    Remedy.REPLACE_OR_ANOTHER_FOLDER: "",
}
