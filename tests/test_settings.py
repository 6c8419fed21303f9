from __future__ import annotations

import os
from pathlib import Path

import pytest

from q35chat.errors import UsageError
from q35chat.settings import EndpointEntry, Settings, load_settings, settings_path


def test_no_file_means_the_defaults(tmp_path: Path) -> None:
    assert load_settings(tmp_path / "none.toml") == Settings()


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
