"""The user's settings file: TOML in the configuration folder, read strictly, written by the user
and by the application, which leaves what it does not change as it is.

Knows the keys, their types and their defaults; knows nothing of who uses them. A command's
option always wins over the file.
"""

from q35chat.settings.entries import EndpointEntry, PersonaEntry, Settings
from q35chat.settings.file import change_settings, load_settings, settings_path
from q35chat.settings.interface import take_over_interface

__all__ = [
    "EndpointEntry",
    "PersonaEntry",
    "Settings",
    "change_settings",
    "load_settings",
    "settings_path",
    "take_over_interface",
]
