"""The export from the setup screen: progress, ends, and what lies in the way."""

from __future__ import annotations

import threading

import pytest

from q35chat.errors import BundleError, ExportError
from q35chat.tui.exporting import FoundBundle, Occupied, Phase
from tests.doubles.scripted_backend import Reply
from tests.doubles.scripted_exporter import MIB, ScriptedExporter
from tests.doubles.scripted_workspace import ScriptedWorkspace
from tests.tui.setting_up import DEMO, exporting, looked_up, put, setting_up
from tests.tui.support import opened


async def test_phases_have_percent_bytes_and_time_left() -> None:
    exporter = ScriptedExporter(
        phases=(Phase("download", 900 * MIB, 1800 * MIB),), gate=threading.Event()
    )
    gate = exporter.gate
    assert gate is not None
    gate.set()
    async with setting_up(exporter) as chat:
        await looked_up(chat)
        gate.clear()
        await chat.press("enter")
        await chat.see("▸ download")
        await chat.see("50%")
        await chat.see("900.0 MiB of 1.8 GiB")
        await chat.see("s left")
        assert chat.flat.index("download") < chat.flat.index("vision") < chat.flat.index("text")
        gate.set()
        await chat.see("is ready")


async def test_escape_asks_and_stops_the_export() -> None:
    exporter = ScriptedExporter()
    async with setting_up(exporter) as chat:
        await exporting(chat, exporter)
        await chat.press("escape")
        await chat.see("Stop the export?")
        await chat.press("n")
        await chat.until(lambda: len(chat.app.screen_stack) == 3)
        assert not exporter.jobs[-1].cancelled
        await chat.press("escape")
        await chat.see("Stop the export?")
        await chat.press("y")
        await chat.see("Stopped; nothing was written")
        assert exporter.jobs[-1].cancelled


async def test_an_export_that_ends_under_the_question_takes_the_question_away() -> None:
    exporter = ScriptedExporter()
    async with setting_up(exporter) as chat:
        gate = await exporting(chat, exporter)
        await chat.press("escape")
        await chat.see("Stop the export?")
        gate.set()
        await chat.see("F5 Open it now")
        assert len(chat.app.screen_stack) == 3


async def test_quitting_asks_while_an_export_runs() -> None:
    exporter = ScriptedExporter()
    async with setting_up(exporter) as chat:
        await exporting(chat, exporter)
        await chat.press("ctrl+q")
        await chat.see("An export is running. Stop it and quit?")
        await chat.press("y")
        await chat.until(lambda: not chat.app.is_running)
    assert exporter.jobs[-1].cancelled


async def test_a_failed_export_is_a_panel_with_the_cause_and_the_form_comes_back() -> None:
    exporter = ScriptedExporter()
    async with setting_up(exporter) as chat:
        await looked_up(chat)
        exporter.errors.append(ExportError("the bundle needs 3.3 GiB, 1.0 GiB are free"))
        await chat.press("enter")
        await chat.see("✗ The export failed")
        assert "the bundle needs 3.3 GiB, 1.0 GiB are free" in chat.flat
        await chat.press("f6")
        await chat.see("is ready")


async def test_escape_on_a_failure_goes_back_to_the_form() -> None:
    exporter = ScriptedExporter()
    async with setting_up(exporter) as chat:
        await looked_up(chat)
        exporter.errors.append(ZeroDivisionError("division by zero"))
        await chat.press("enter")
        await chat.see("Unexpected ZeroDivisionError: division by zero")
        await chat.press("escape")
        await chat.see("RAM")
        assert "The export failed" not in chat.flat
        await chat.press("enter")
        await chat.see("is ready")


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (
            FoundBundle("Qwen/Qwen3.5-0.8B", "int8", 2048),
            "out holds an int8 bundle, not int4; it is",
        ),
        (
            FoundBundle("Qwen/Qwen3.5-0.8B", "int4", 4096),
            "a bundle of 4,096 slots, not 2,048; it is",
        ),
        (
            FoundBundle("Qwen/Qwen3.5-4B", "int4", 2048),
            "out holds a bundle of Qwen/Qwen3.5-4B; it is",
        ),
    ],
)
async def test_another_bundle_in_the_folder_is_said_before_the_export(
    there: FoundBundle, said: str
) -> None:
    exporter = ScriptedExporter(there=there)
    async with setting_up(exporter) as chat:
        await looked_up(chat)
        await chat.see(said)
        assert len(exporter.wishes) == 1


async def test_the_same_bundle_in_the_folder_is_no_warning() -> None:
    exporter = ScriptedExporter(there=FoundBundle("Qwen/Qwen3.5-0.8B", "int4", 2048))
    async with setting_up(exporter) as chat:
        await looked_up(chat)
        await chat.see("Choose how exact and how long; Enter exports")
        assert "holds" not in chat.flat


async def test_a_bundle_in_the_way_is_replaced_only_by_its_own_key() -> None:
    exporter = ScriptedExporter()
    async with setting_up(exporter) as chat:
        await looked_up(chat)
        exporter.errors.append(Occupied("out holds an int8 bundle, not int4"))
        await chat.press("enter")
        await chat.see("F6 Replace the bundle that is there")
        assert "✗ A bundle is there already" in chat.flat
        assert "failed" not in chat.flat
        assert chat.flat.count("int8 bundle") == 1
        await chat.press("enter")
        await chat.see("RAM")
        exporter.errors.append(Occupied("out holds an int8 bundle, not int4"))
        await chat.press("enter")
        await chat.see("F6 Replace the bundle that is there")
        await chat.press("f6")
        await chat.see("is ready")
    assert [wish.replace for wish in exporter.wishes] == [False, False, False, True]


# -- opening the result


async def test_the_new_model_takes_over_the_open_conversation() -> None:
    workspace = ScriptedWorkspace([Reply("the demo's"), Reply("the real one's")], info=DEMO)
    async with opened(workspace) as chat:
        await chat.ask("hello")
        chat.app.exporter = ScriptedExporter()
        await chat.press("f9")
        await chat.see("hub id or folder")
        await looked_up(chat)
        put(chat, "folder", "real-model")
        await chat.press("enter")
        await chat.see("Next time: q35chat --model-dir real-model")
        await chat.press("f5")
        await chat.until(lambda: len(chat.app.screen_stack) == 2)
        await chat.see("answers from now on · next time: q35chat --model-dir real-model")
        assert "the demo's" in chat.flat
        assert "real-model" in chat.text.split("\n")[0]
        await chat.ask("and now?")
        assert "the real one's" in chat.flat


async def test_a_new_model_that_cannot_be_opened_leaves_the_present_one() -> None:
    workspace = ScriptedWorkspace([Reply("still here")])
    async with opened(workspace) as chat:
        chat.app.exporter = ScriptedExporter()
        await chat.press("f9")
        await chat.see("hub id or folder")
        await looked_up(chat)
        await chat.press("enter")
        await chat.see("is ready")
        workspace.load_error = BundleError("out/text is damaged; export it again")
        await chat.press("enter")
        await chat.see("the present model stays")
        assert "out/text is damaged; export it again" in chat.flat
        await chat.press("escape")
        await chat.ask("hello")
        assert "still here" in chat.flat
