"""What the screen changes in the settings file: nothing that the user wrote is thrown away."""

from __future__ import annotations

from q35chat.settings import Settings, change_settings, load_settings, settings_path
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
