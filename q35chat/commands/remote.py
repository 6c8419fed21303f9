"""The server of a command: which one it is, and with what key.

The one place where `--endpoint`, the settings' entries and the environment meet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from q35chat.ascend.options import DEFAULT_NPU
from q35chat.commands.options import AnswererOptions
from q35chat.endpoint.choice import (
    EndpointChoice,
    is_address,
    key_from_environment,
    key_from_keyring,
    read_address,
)
from q35chat.errors import UsageError
from q35chat.text import safe_line
from q35chat.user_input import typed_path

if TYPE_CHECKING:
    from q35chat.settings import EndpointEntry, Settings

KEY_VARIABLE: Final = "Q35CHAT_API_KEY"
_FOR_BUNDLES: Final = ("model_dir", "threads", "speculate", "snapshot_mib", "state_cache_mib")


def check_endpoint(options: AnswererOptions) -> None:
    """Refuse options that contradict each other. Raises UsageError."""
    if options.endpoint is None:
        if options.model is not None:
            raise UsageError(
                "--model names the model of a server; add --endpoint URL, or name a bundle with "
                "--model-dir"
            )
        return
    plain = AnswererOptions()
    given = [name for name in _FOR_BUNDLES if getattr(options, name) != getattr(plain, name)]
    if given or options.npu != DEFAULT_NPU:
        option = f"--{given[0].replace('_', '-')}" if given else "an option for an NPU"
        raise UsageError(f"{option} is for a bundle on this machine; drop it or --endpoint")


def chosen_endpoint(options: AnswererOptions, settings: Settings) -> EndpointChoice | None:
    """The server that `options` ask for, with what `settings` say of it; None for none.

    Raises UsageError.
    """
    check_endpoint(options)
    named = options.endpoint
    if named is None:
        return None
    if named in settings.endpoint:
        choice = _of_entry(settings.endpoint[named])
    elif is_address(named):
        key = key_from_environment(KEY_VARIABLE, needed=False)
        choice = EndpointChoice(read_address(named), key=key, key_name=KEY_VARIABLE if key else "")
    else:
        known = ", ".join(settings.endpoint) or "none"
        raise UsageError(
            f"--endpoint {safe_line(named)}: no address like http://HOST:8000/v1, and no "
            f"[endpoint.NAME] of the settings, which have {safe_line(known)}"
        )
    return choice if options.model is None else replace(choice, model=options.model)


def _of_entry(entry: EndpointEntry) -> EndpointChoice:
    key, key_name = None, ""
    if entry.api_key_env:
        key, key_name = key_from_environment(entry.api_key_env), entry.api_key_env
    elif entry.api_key_keyring:
        key, key_name = key_from_keyring(entry.api_key_keyring), "the keyring"
    return EndpointChoice(
        address=read_address(entry.url),
        model=entry.model,
        key=key,
        key_name=key_name,
        capacity=entry.capacity,
        wait_s=entry.wait_s,
        ca_file=typed_path(entry.ca_file) if entry.ca_file else None,
    )
