from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.errors import BundleError, CheckpointError, ExportError
from q35chat.tui.exporting import Occupied, Phase, Standing
from q35chat.tui.widgets.choices import Choices
from tests.doubles.scripted_exporter import GIB, MIB, ScriptedExporter
from tests.doubles.scripted_workspace import Gate, Reply, ScriptedWorkspace
from tests.tui.setting_up import DEMO, exporting, looked_up, put, setting_up, setup_of
from tests.tui.support import NARROW, opened

# -- the way there


async def test_the_demo_says_which_key_gets_a_real_model() -> None:
    async with opened(ScriptedWorkspace(info=DEMO)) as chat:
        await chat.see("F9 gets a real one here")
        await chat.see("q35chat export Qwen/Qwen3.5-0.8B --out out/")


@pytest.mark.parametrize("way", ["slash", "palette"])
async def test_the_setup_opens_by_slash_command_and_palette(way: str) -> None:
    async with opened() as chat:
        chat.app.exporter = ScriptedExporter()
        if way == "slash":
            await chat.press(*"/setup", "enter")
        else:
            await chat.press("ctrl+p", *"real model")
            await chat.see("Export a checkpoint here")
            await chat.press("enter", "enter")
        await chat.see("hub id or folder")
        await chat.press("escape")
        await chat.until(lambda: len(chat.app.screen_stack) == 2)


async def test_the_setup_waits_for_the_end_of_an_answer() -> None:
    gate = Gate()
    async with opened(ScriptedWorkspace([Reply("a b c", gate=gate)])) as chat:
        chat.app.exporter = ScriptedExporter()
        await chat.write("go")
        await chat.press("enter")
        await chat.until(lambda: chat.screen.generation.running)
        await chat.press("f9")
        await chat.see("still being written")
        assert len(chat.app.screen_stack) == 2
        gate.open()
        await chat.idle()


async def test_a_model_that_cannot_be_loaded_offers_the_setup() -> None:
    workspace = ScriptedWorkspace(load_error=BundleError("out is damaged; export it again"))
    async with opened(workspace, loaded=False) as chat:
        chat.app.exporter = ScriptedExporter()
        await chat.see("F6 Get a real model")
        workspace.load_error = None
        await chat.press("f6")
        await chat.see("hub id or folder")
        await looked_up(chat)
        await chat.press("enter")
        await chat.see("is ready")
        await chat.press("enter")
        await chat.until(lambda: chat.screen.ready is not None)


# -- the form


async def test_nothing_is_looked_up_before_it_is_asked_for() -> None:
    exporter = ScriptedExporter()
    async with setting_up(exporter) as chat:
        await chat.press(*"x/y", "tab", "tab", "down", "tab", "tab")
        await chat.see("40.0 GiB free")
        assert exporter.jobs == []


async def test_sizes_are_shown_for_each_precision_and_memory_follows_the_capacity() -> None:
    async with setting_up(ScriptedExporter()) as chat:
        await looked_up(chat)
        assert "int4 600.0 MiB on disk 748.0 MiB of memory" in chat.flat
        assert "fp32 3.3 GiB on disk 3.5 GiB of memory" in chat.flat
        put(chat, "capacity", "8192")
        await chat.see("600.0 MiB on disk 892.0 MiB of memory")


async def test_a_wish_says_what_was_chosen(tmp_path: Path) -> None:
    exporter = ScriptedExporter()
    async with setting_up(exporter) as chat:
        put(chat, "model", "owner/model")
        put(chat, "capacity", "4096")
        put(chat, "folder", str(tmp_path / "bundle"))
        setup_of(chat).query_one("#hub", Choices).focus()
        await chat.press("right")
        await looked_up(chat)
        assert setup_of(chat).focused is setup_of(chat).query_one("#precision")
        await chat.press("down", "enter")
        await chat.see("owner/model is ready")
    wish = exporter.wishes[-1]
    assert (wish.model, wish.hub, wish.precision) == ("owner/model", "modelscope", "int8")
    assert (wish.capacity, wish.folder, wish.replace) == (4096, tmp_path / "bundle", False)


async def test_another_model_or_hub_is_looked_up_again() -> None:
    exporter = ScriptedExporter()
    async with setting_up(exporter) as chat:
        await looked_up(chat)
        put(chat, "model", "owner/other")
        await chat.until(lambda: "of memory" not in chat.flat)
        await looked_up(chat)
        setup_of(chat).query_one("#hub", Choices).focus()
        await chat.press("right")
        await chat.until(lambda: "of memory" not in chat.flat)
        await looked_up(chat)
    assert [(wish.model, wish.hub) for wish in exporter.wishes[1:]] == [
        ("owner/other", "huggingface"),
        ("owner/other", "modelscope"),
    ]


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("model", " ", "Model: give a hub id such as Qwen/Qwen3.5-0.8B, or a folder"),
        ("capacity", "many", "Capacity must be a whole number from 16 to"),
        ("capacity", "3", "Capacity must be from 16 to"),
        ("folder", "", "Folder: say where the bundle goes"),
    ],
)
async def test_a_wrong_field_says_why_on_one_line(field: str, text: str, words: str) -> None:
    exporter = ScriptedExporter()
    async with setting_up(exporter) as chat:
        put(chat, field, text)
        await chat.pilot.pause()
        await chat.press("enter")
        await chat.see(words)
        assert exporter.jobs == []


async def test_a_capacity_beyond_the_model_is_refused_before_the_export() -> None:
    exporter = ScriptedExporter()
    async with setting_up(exporter) as chat:
        await looked_up(chat)
        put(chat, "capacity", "262145")
        await chat.see("from 16 to 262,144")
        await chat.press("enter")
        await chat.see("Capacity must be from 16 to 262,144")
        assert len(exporter.jobs) == 1


async def test_a_disk_that_is_too_small_is_seen_before_the_export() -> None:
    exporter = ScriptedExporter(free=100 * MIB)
    async with setting_up(exporter) as chat:
        await looked_up(chat)
        await chat.see("Folder: 630.0 MiB are needed, 100.0 MiB are free there")
        await chat.press("enter")
        await chat.see("✗ Folder: 630.0 MiB are needed")
        assert len(exporter.jobs) == 1


async def test_a_model_larger_than_the_free_memory_is_a_warning_only() -> None:
    exporter = ScriptedExporter()
    exporter.estimate = replace(exporter.estimate, memory_free=GIB // 2)
    async with setting_up(exporter) as chat:
        await chat.press("enter")
        await chat.see("A chat takes about 748.0 MiB of memory, 512.0 MiB are free now")
        await chat.press("enter")
        await chat.see("is ready")


async def test_a_model_that_is_not_there_says_so_under_the_form() -> None:
    exporter = ScriptedExporter(errors=[CheckpointError("the hub has no model x/y: check the id")])
    async with setting_up(exporter) as chat:
        await chat.press("enter")
        await chat.see("✗ the hub has no model x/y: check the id")
        await looked_up(chat)


async def test_looking_can_be_stopped() -> None:
    exporter = ScriptedExporter(gate=threading.Event())
    async with setting_up(exporter) as chat:
        await chat.press("enter")
        await chat.see("Looking at Qwen/Qwen3.5-0.8B…")
        await chat.press("escape")
        await chat.see("● Stopped")
        assert exporter.jobs[0].cancelled
        assert setup_of(chat).state == "form"


async def test_model_names_are_never_markup() -> None:
    exporter = ScriptedExporter(errors=[CheckpointError("no [red]model[/red] \x1b[31m here")])
    async with setting_up(exporter) as chat:
        put(chat, "model", "[bold]x[/bold]")
        await chat.press("enter")
        await chat.see("no [red]model[/red] ␛[31m here")
        await looked_up(chat)
        await chat.press("enter")
        await chat.see("[bold]x[/bold] is ready")


# -- exporting


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
        await chat.see("of memory")
        assert "The export failed" not in chat.flat
        await chat.press("enter")
        await chat.see("is ready")


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (Standing("Qwen/Qwen3.5-0.8B", "int8", 2048), "out holds an int8 bundle, not int4; it is"),
        (Standing("Qwen/Qwen3.5-0.8B", "int4", 4096), "a bundle of 4,096 slots, not 2,048; it is"),
        (Standing("Qwen/Qwen3.5-4B", "int4", 2048), "out holds a bundle of Qwen/Qwen3.5-4B; it is"),
    ],
)
async def test_another_bundle_in_the_folder_is_said_before_the_export(
    there: Standing, said: str
) -> None:
    exporter = ScriptedExporter(there=there)
    async with setting_up(exporter) as chat:
        await looked_up(chat)
        await chat.see(said)
        assert len(exporter.wishes) == 1


async def test_the_same_bundle_in_the_folder_is_no_warning() -> None:
    exporter = ScriptedExporter(there=Standing("Qwen/Qwen3.5-0.8B", "int4", 2048))
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
        await chat.see("of memory")
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
        workspace.load_error = None


@pytest.mark.parametrize("size", [(60, 20), NARROW, (120, 36)])
async def test_every_state_fits_the_screen(size: tuple[int, int]) -> None:
    long = CheckpointError("cannot fetch the model; check the network, " + "or try again " * 8)
    exporter = ScriptedExporter(errors=[long], phases=(Phase("vision", 1, 100 * MIB),))
    async with setting_up(exporter, size=size) as chat:
        await chat.press("enter")
        await chat.see("cannot fetch the model")
        assert "Esc close" in chat.flat
        await chat.press("enter")
        await chat.see("748.0 MiB")
        assert "Esc close" in chat.flat
        await chat.press("enter")
        await chat.see("F5 Open it now")
        assert "Esc close" in chat.flat
