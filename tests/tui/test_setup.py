from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.errors import BundleError, CheckpointError, UsageError
from q35chat.tui.exporting import FoundBundle, MadeBundle, Phase
from q35chat.tui.widgets.setup_form import Choices
from q35chat.user_input import MIN_CAPACITY
from q35export.request import ExportRequest
from tests.doubles.scripted_exporter import GIB, MIB, ScriptedExporter
from tests.doubles.scripted_workspace import ScriptedWorkspace
from tests.tui.setting_up import looked_up, put, setting_up, setup_of
from tests.tui.support import NARROW, WIDE, Chat, opened

# -- the way there


@pytest.mark.parametrize("way", ["slash", "palette"])
async def test_the_setup_opens_by_slash_command_and_palette(chat: Chat, way: str) -> None:
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
        await chat.until(lambda: chat.screen.session.available is not None)


# -- the form


async def test_nothing_is_looked_up_before_it_is_asked_for() -> None:
    exporter = ScriptedExporter()
    async with setting_up(exporter) as chat:
        await chat.press(*"x/y", "tab", "tab", "down", "tab", "tab")
        await chat.see("40.0 GiB free")
        assert exporter.jobs == []


async def test_a_bundle_that_is_there_says_what_it_keeps() -> None:
    there = FoundBundle("Qwen/Qwen3.5-0.8B", "int4", 2048, "keeps 96 % of first choices")
    async with setting_up(ScriptedExporter(there=there)) as chat:
        await chat.see("40.0 GiB free · int4 there keeps 96 % of first choices")


async def test_a_bundle_or_its_name_in_place_of_a_checkpoint_is_opened_and_not_exported() -> None:
    made = MadeBundle("Qwen3.5-0.6B", Path("small"), 0, "q35chat --model-dir small")
    exporter = ScriptedExporter(bundles={"small": made})
    async with setting_up(exporter) as chat:
        put(chat, "model", "small")
        await chat.press("enter")
        await chat.hear("Qwen3.5-0.6B answers from now on · next time: q35chat --model-dir small")
        assert exporter.wishes == []


async def test_a_bundle_that_its_npu_cannot_run_yet_says_what_is_to_be_done() -> None:
    made = MadeBundle("Qwen3.5-0.6B", Path("small"), 0, "q35chat convert small", ready=False)
    async with setting_up(ScriptedExporter(bundles={"small": made})) as chat:
        put(chat, "model", "small")
        await chat.press("enter")
        await chat.see("Now make it ready for the NPU: q35chat convert small")


async def test_sizes_are_shown_for_each_precision_and_memory_follows_the_capacity() -> None:
    async with setting_up(ScriptedExporter()) as chat:
        await looked_up(chat)
        assert "int4 600.0 MiB on disk 748.0 MiB RAM" in chat.flat
        assert "int4-exact 660.0 MiB on disk" in chat.flat
        assert "fp32 3.3 GiB on disk 3.5 GiB RAM" in chat.flat
        put(chat, "capacity", "8192")
        await chat.see("600.0 MiB on disk 892.0 MiB RAM")


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
    assert (wish.model, wish.hub, wish.precision) == ("owner/model", "modelscope", "int4-exact")
    assert (wish.capacity, wish.folder, wish.replace) == (4096, tmp_path / "bundle", False)


async def test_another_model_or_hub_is_looked_up_again() -> None:
    exporter = ScriptedExporter()
    async with setting_up(exporter) as chat:
        await looked_up(chat)
        put(chat, "model", "owner/other")
        await chat.until(lambda: "RAM" not in chat.flat)
        await looked_up(chat)
        setup_of(chat).query_one("#hub", Choices).focus()
        await chat.press("right")
        await chat.until(lambda: "RAM" not in chat.flat)
        await looked_up(chat)
    assert [(wish.model, wish.hub) for wish in exporter.wishes[1:]] == [
        ("owner/other", "huggingface"),
        ("owner/other", "modelscope"),
    ]


async def test_a_wrong_field_says_why_on_one_line() -> None:
    exporter = ScriptedExporter()
    async with setting_up(exporter) as chat:
        for field, text, words in (
            ("capacity", "16", "Capacity must be from 17 to"),
            ("capacity", "many", "Capacity must be a whole number from 17 to"),
            ("folder", "", "Folder: say where the bundle goes"),
            ("model", " ", "Model: give a hub id such as Qwen/Qwen3.5-0.8B, or a folder"),
        ):
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
        await chat.see("from 17 to 262,144")
        await chat.press("enter")
        await chat.see("Capacity must be from 17 to 262,144")
        assert len(exporter.jobs) == 1


async def test_the_least_capacity_of_the_form_is_the_exporters() -> None:
    async with setting_up(ScriptedExporter()) as chat:
        put(chat, "capacity", str(MIN_CAPACITY))
        least = setup_of(chat).form.wish().capacity
        put(chat, "capacity", str(MIN_CAPACITY - 1))
        with pytest.raises(ValueError, match="must be from"):
            setup_of(chat).form.wish()
    assert ExportRequest(max_seq_len=least).max_seq_len == least
    with pytest.raises(UsageError, match=f"at least {least}"):
        ExportRequest(max_seq_len=least - 1)


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


@pytest.mark.parametrize("words", ["or try again " * 8, "no such model " * 60])
async def test_what_is_said_leaves_the_form_and_the_keys_on_screen(words: str) -> None:
    said = f"cannot fetch the model; {words}"
    exporter = ScriptedExporter(errors=[CheckpointError(said)])
    async with setting_up(exporter, size=(60, 20)) as chat:
        await chat.press("enter")
        await chat.see("cannot fetch the model")
        body = setup_of(chat).query_one("#setup-body")
        assert body.size.height >= 4
        for place in (0, body.max_scroll_y):
            body.scroll_to(y=place, animate=False)
            await chat.settled()
            assert body.scroll_y == place
            assert said[:100] in chat.flat.replace(" │ │ ", " ").replace(" │╮ │ ", " ")
            assert "Esc close" in chat.flat


async def test_every_state_fits_the_screen() -> None:
    long = CheckpointError("cannot fetch the model; check the network, " + "or try again " * 8)
    exporter = ScriptedExporter(errors=[long], phases=(Phase("vision", 1, 100 * MIB),))
    async with setting_up(exporter) as chat:
        for words in ("cannot fetch the model", "748.0 MiB", "F5 Open it now"):
            await chat.press("enter")
            await chat.see(words)
            for size in ((60, 20), NARROW, WIDE):
                assert "Esc close" in await chat.resized(*size)
