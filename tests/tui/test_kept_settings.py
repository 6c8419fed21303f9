"""What the screen changes in the settings file: nothing that the user wrote is thrown away."""

from __future__ import annotations

from q35chat.chat.values import ChatSettings
from q35chat.errors import UsageError
from q35chat.settings import Settings, change_settings, load_settings, settings_path
from tests.doubles.scripted_workspace import ScriptedWorkspace
from tests.tui.support import opened


async def test_a_file_with_a_mistake_in_it_is_not_written_over() -> None:
    path = settings_path()
    path.parent.mkdir(parents=True)
    path.write_text('[shortcuts]\nnew = "f9"\nhelp = \n')
    async with opened() as chat:
        chat.app.choose_theme("q35-light")
        assert chat.app.theme == "q35-light"
        await chat.hear("not saved")
    assert path.read_text() == '[shortcuts]\nnew = "f9"\nhelp = \n'


async def test_what_was_written_into_the_file_meanwhile_stays_when_a_setting_changes() -> None:
    async with opened(settings=Settings()) as chat:
        change_settings({"pictures": "none", "shortcuts": {"new": "f9"}})
        chat.app.choose_theme("q35-light")
        chat.app.choose_pictures("blocks")
    assert load_settings() == Settings(
        theme="q35-light", pictures="blocks", shortcuts={"new": "f9"}
    )


async def test_settings_are_for_this_chat_until_they_are_kept_for_all_new_ones() -> None:
    kept: list[ChatSettings] = []

    def keep(settings: ChatSettings) -> ChatSettings:
        if settings.max_new_tokens == 1:
            raise UsageError("the file cannot be written")
        kept.append(settings)
        return settings

    workspace = ScriptedWorkspace()
    workspace._keep = keep
    async with opened(workspace, size=(120, 60)) as chat:
        await chat.press("f2")
        await chat.see("Keep for all new chats")
        screen = chat.app.screen
        screen.query_one("#system_prompt").insert("Be brief.")  # type: ignore[attr-defined]
        await chat.until(lambda: chat.conversation.settings().system_prompt == "Be brief.")
        assert not kept
        await chat.press("ctrl+s")
        await chat.see("All new chats begin with these settings")
        assert [it.system_prompt for it in kept] == ["Be brief."]
        screen.query_one("#top_k").value = "many"  # type: ignore[attr-defined]
        await chat.see("not saved: must be")
        await chat.press("ctrl+s")
        await chat.see("Nothing is kept for new chats: Top k must be")
        assert len(kept) == 1
        screen.query_one("#top_k").value = "20"  # type: ignore[attr-defined]
        await chat.until(lambda: "not saved" not in chat.flat)
        screen.query_one("#max_new_tokens").value = "1"  # type: ignore[attr-defined]
        await chat.until(lambda: chat.conversation.settings().max_new_tokens == 1)
        await chat.click("#keep")
        await chat.see("the file cannot be written")
