from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.errors import UsageError
from q35chat.settings import (
    EndpointEntry,
    Settings,
    change_settings,
    load_settings,
    settings_path,
    take_over_interface,
)


def test_no_file_means_the_defaults(tmp_path: Path) -> None:
    assert load_settings(tmp_path / "none.toml") == Settings()
    (tmp_path / "file").touch()
    assert load_settings(tmp_path / "file" / "none.toml") == Settings()


def test_the_file_lies_in_the_configuration_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert settings_path().name == "settings.toml"
    settings_path().parent.mkdir()
    settings_path().write_text("thinking = true\n")
    assert load_settings() == Settings(thinking=True)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", Settings()),
        (
            'model_dir = "/models/我的 \\"best\\"\\n"\nmax_image_tokens = 64\nthinking = true\n',
            Settings(model_dir='/models/我的 "best"\n', max_image_tokens=64, thinking=True),
        ),
        ("speculate = 'off'\n", Settings(speculate="off")),
        (
            (
                "theme = 'x'\npictures = 'sixel'\nnotify = false\ndetails = true\n"
                "[shortcuts]\nnew = 'f9, ctrl+b'\n"
            ),
            Settings(
                theme="x",
                pictures="sixel",
                notify=False,
                details=True,
                shortcuts={"new": "f9, ctrl+b"},
            ),
        ),
        (
            (
                "[endpoint.cluster]\nurl = 'http://10.0.0.5:8000/v1'\nmodel = 'qwen'\n"
                "api_key_env = 'CLUSTER_KEY'\ncapacity = 900\n"
            ),
            Settings(
                endpoint={
                    "cluster": EndpointEntry(
                        "http://10.0.0.5:8000/v1", "qwen", "CLUSTER_KEY", capacity=900
                    )
                }
            ),
        ),
    ],
)
def test_what_is_written_is_loaded(tmp_path: Path, text: str, settings: Settings) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(text, encoding="utf-8")
    assert load_settings(path) == settings


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "model_dir = 'a'\ncolour = 'b'\n",
            "line 2: colour is no setting; the settings are model_dir",
        ),
        ("\n\nthinking = 1\n", "line 3: thinking must be true or false, not 1"),
        ("max_image_tokens = true\n", "line 1: max_image_tokens must be a whole number, not True"),
        ("max_image_tokens = 0\n", "line 1: max_image_tokens must be at least 1, not 0"),
        ("speculate = 'on'\n", "line 1: speculate must be one of off, lookup, mtp, auto, not 'on'"),
        ("model_dir = 3.5\n", "line 1: model_dir must be a text"),
        ("[model_dir]\nx = 1\n", "line 1: model_dir must be a text"),
        ("x = 1\nthinking = a\n", "is not TOML: .*line 2"),
        ("endpoint = 'x'\n", r"line 1: endpoint must be \[endpoint.NAME\]"),
        ("[endpoint]\nx = 1\n", r"line 1: endpoint must be \[endpoint.NAME\]"),
        ("[endpoint.x]\nmodel = 'a'\n", "line 1: endpoint.x needs url"),
        ("url = 1\n[endpoint.x]\nurl = 1\n", "line 1: url is no setting"),
        ("\n[endpoint.x]\nurl = 1\n", "line 3: url must be a text"),
        ("[endpoint.x]\nurl = 'a'\nwait_s = 0\n", "line 3: wait_s must be at least 1"),
        ("[endpoint.x]\nurl = 'a'\napi_key_env = 'sk-1'\n", "line 3: .*in capital letters"),
        ("pictures = 'oil'\n", "line 1: pictures must be one of auto, kitty, sixel, blocks, none"),
        ("notify = 'no'\n", "line 1: notify must be true or false"),
        ("shortcuts = 1\n", "line 1: shortcuts must be a table of keys"),
        ("x = 1\n[shortcuts]\nnew = ['f9']\n", "line 1: x is no setting"),
        ("[shortcuts]\nnew = ['f9']\n", "line 2: new must be keys in a text"),
        (f"max_image_tokens = {'9' * 5_000}\n", "is not TOML: .*digits"),
        ("\xff", "cannot read .*settings.toml"),
    ],
)
def test_a_bad_file_is_one_line_with_the_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=said) as caught:
        load_settings(path)
    assert "\n" not in str(caught.value)
    assert "settings.toml" in str(caught.value)


def test_a_key_in_the_file_is_refused_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("[endpoint.x]\nurl = 'http://x/v1'\napi_key = 'sk-secret'\n")
    with pytest.raises(UsageError, match="line 3: api_key does not belong") as caught:
        load_settings(path)
    assert "sk-secret" not in str(caught.value)


def test_a_file_that_is_nested_too_deeply_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("x = " + "[" * 100_000)
    with pytest.raises(UsageError, match=r"settings\.toml is not TOML"):
        load_settings(path)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    os.mkfifo(path)
    with pytest.raises(UsageError, match=r"settings\.toml is no file"):
        load_settings(path)


def written(path: Path) -> str:
    return path.read_bytes().decode()


def test_a_file_that_is_no_settings_by_its_size_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "settings.toml").open("wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(UsageError, match=r"has 3\.0 GiB, settings at most 1\.0 MiB"):
        load_settings(tmp_path / "settings.toml")


def test_a_change_leaves_what_the_user_wrote_around_it_also_comments(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    text = (
        "# mine\r\nthinking = true  # always\r\n\r\n[sampling]  # warm\r\ntop_k = 20\r\n"
        'seed = 7\r\n\r\n[persona.x]\r\nsystem = "theme = 1"\r\n'
    )
    path.write_bytes(text.encode())
    changes = {"theme": "q35-light", "thinking": None, "sampling": {"top_k": 5, "seed": None}}
    settings = change_settings(changes, path)
    assert settings == load_settings(path)
    assert (settings.theme, settings.thinking) == ("q35-light", False)
    assert settings.sampling == {"top_k": 5}
    assert settings.persona["x"].system == "theme = 1"
    assert "# mine\r\n" in written(path)
    assert "[sampling]  # warm\r\n" in written(path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "theme = 'x'",
        "[sampling]\ntop_k = 2",
        "sampling.top_k = 2\n",
        "sampling = {top_k = 2}\n",
        "[endpoint.x]\nurl = 'http://a'\n",
    ],
)
@pytest.mark.parametrize(
    "value",
    ["plain", "two\nlines\r\n", "\r", '"""', "\x1b\x00\x7f\\", "好 😀", "'''\n", 'a\n"""b"\n'],
)
def test_every_text_is_read_back_as_it_was_set_in_every_file(
    text: str, value: str, tmp_path: Path
) -> None:
    path = tmp_path / "deep" / "settings.toml"
    path.parent.mkdir()
    path.write_text(text)
    before = load_settings(path)
    change_settings({"system": value, "shortcuts": {value: value}}, path)
    change_settings({"sampling": {"top_p": 0.5}}, path)
    assert load_settings(path) == replace(
        before,
        system=value,
        shortcuts={value: value},
        sampling={**before.sampling, "top_p": 0.5},
    )


def test_the_file_is_made_for_a_change_and_only_the_user_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "settings.toml"
    change_settings({"system": "Be brief."}, path)
    assert load_settings(path) == Settings(system="Be brief.")
    assert path.stat().st_mode & 0o077 == 0


def test_a_change_that_would_make_the_file_wrong_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("thinking = true\n")
    with pytest.raises(UsageError, match="top_k must be a number from 0"):
        change_settings({"sampling": {"top_k": -1}}, path)
    assert written(path) == "thinking = true\n"


def test_the_file_of_earlier_versions_is_taken_over_once_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    path, old = tmp_path / "settings.toml", tmp_path / "interface.toml"
    path.write_text("# mine\nthinking = true\n[shortcuts]\nnew = 'f11'\n")
    text = (
        "# my own\ntheme = 'q35-light'\npictures = false\nnotify = false\nother = 1\n"
        "[keys]\nnew = 'f9'\n'two words' = 'f10'\n"
    )
    old.write_text(text)
    assert take_over_interface(path) == ""
    taken = Settings(
        thinking=True,
        theme="q35-light",
        pictures="none",
        notify=False,
        shortcuts={"new": "f11", "two words": "f10"},
    )
    assert load_settings(path) == taken
    assert written(path).startswith("# mine\n")
    assert not old.exists()
    assert written(tmp_path / "interface.toml.old") == text
    change_settings({"theme": "q35-dark"}, path)
    assert take_over_interface(path) == ""
    assert load_settings(path).theme == "q35-dark"


def test_what_the_earlier_file_left_at_its_defaults_is_not_set(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.with_name("interface.toml").write_text(
        "theme = 'q35-dark'\npictures = true\nnotify = true\n[keys]\n"
    )
    assert take_over_interface(path) == ""
    assert not path.exists()


@pytest.mark.parametrize(
    ("earlier", "text", "said"),
    [
        ("theme = 3\n", "", "interface.toml, line 1: theme must be a text"),
        ("[keys]\nnew = \n", "", "interface.toml is not TOML"),
        ("theme = 'q35-light'\n", "nonsense = 1\n", "settings.toml, line 1: nonsense is no"),
        ("theme = 'q35-light'\n[keys]\nnew = 'f9'", "shortcuts = 3\n", "must be a table"),
    ],
)
def test_what_cannot_be_taken_over_is_told_and_both_files_stay(
    earlier: str, text: str, said: str, tmp_path: Path
) -> None:
    path, old = tmp_path / "settings.toml", tmp_path / "interface.toml"
    path.write_text(text)
    old.write_text(earlier)
    problem = take_over_interface(path)
    assert said in problem
    assert "interface.toml is not used any more" in problem
    assert "\n" not in problem
    assert (written(path), written(old)) == (text, earlier)
