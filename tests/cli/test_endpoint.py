"""`--endpoint` on the command line, and that nothing leaves the machine without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from q35chat.cli import run
from q35chat.commands.ask import AskOptions, ask_once
from q35chat.commands.chat import ChatOptions, stored_workspace
from q35chat.endpoint import choice
from q35chat.errors import UsageError
from q35chat.settings import EndpointEntry, Settings, settings_path
from q35chat.store import Store
from tests.cli.scripted import recorded
from tests.doubles.fake_vllm import FakeVllm

Capture = pytest.CaptureFixture[str]
URL = "http://127.0.0.1:1/v1"


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config-home"))
    monkeypatch.delenv("Q35CHAT_API_KEY", raising=False)
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"")))


def test_ask_answers_from_a_server_and_keeps_the_chat(capfd: Capture) -> None:
    with FakeVllm(cached=3).serving() as server:
        code = run(["ask", "--endpoint", server.address.base, "--json", "Hello"])
    told = json.loads(capfd.readouterr().out)
    assert (code, told["text"], told["reused_tokens"]) == (0, "Hello there.", 3)
    assert run(["sessions", "list"]) == 0
    assert "Hello" in capfd.readouterr().out


def test_on_a_terminal_a_server_is_asked_and_no_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    seen = recorded(terminal=True)
    with FakeVllm().serving() as server:
        assert ask_once(AskOptions("Hello", endpoint=server.address.base), seen.console) == 0
    assert "asking the server" in seen.err.getvalue()
    assert "loading" not in seen.err.getvalue()


def test_stats_say_nothing_of_a_runtime_that_is_elsewhere(capfd: Capture) -> None:
    with FakeVllm().serving() as server:
        assert run(["ask", "--endpoint", server.address.base, "--stats", "Hello"]) == 0
    err = capfd.readouterr().err
    assert "ms a token" in err
    assert "in the runtime" not in err


def test_a_plain_chat_goes_on_over_a_server(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"One\nTwo\n")))
    fake = FakeVllm()
    with fake.serving() as server:
        assert run(["--endpoint", server.address.base, "--plain"]) == 0
    assert capfd.readouterr().out == "Hello there.\nHello there.\n"
    assert [message["role"] for message in fake.asked[1]["messages"]] == [
        "user", "assistant", "user",
    ]  # fmt: skip


def test_a_server_of_the_settings_is_asked_by_its_name_with_its_key(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUSTER_KEY", "sk-secret")
    fake = FakeVllm(key="sk-secret")
    with fake.serving() as server:
        settings_path().parent.mkdir(parents=True)
        settings_path().write_text(
            f"[endpoint.cluster]\nurl = '{server.address.base}'\nmodel = 'qwen'\n"
            "api_key_env = 'CLUSTER_KEY'\n"
        )
        assert run(["ask", "--endpoint", "cluster", "Hello"]) == 0
    assert fake.headers[0]["Authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ask", "--endpoint", "nowhere", "x"], "no [endpoint.NAME] of the settings, which have"),
        (["ask", "--endpoint", "ftp://host/v1", "x"], "is no address of a server"),
        (["ask", "--endpoint", "http://", "x"], "is no address of a server"),
        (["ask", "--endpoint", "http://a:b/v1", "x"], "is no address"),
        (["ask", "--endpoint", "http://me:pass@host/v1", "x"], "holds a name or a password"),
        (["ask", "--endpoint", URL, "-m", "out", "x"], "--model-dir is for a bundle"),
        (["ask", "--endpoint", URL, "--threads", "2", "x"], "--threads is for a bundle"),
        (["ask", "--endpoint", URL, "--device-id", "1", "x"], "an option for an NPU is for"),
        (["ask", "--model", "qwen", "x"], "add --endpoint URL"),
        (["bench", "--endpoint", URL], "bench works on a bundle"),
        (["verify", f"--endpoint={URL}"], "verify works on a bundle"),
        (["doctor", "--endpoint", URL], "doctor works on a bundle"),
        (["export", "--endpoint", URL], "export works on a bundle"),
    ],
)
def test_what_cannot_be_asked_of_a_server_is_wrong_usage(
    capfd: Capture, arguments: list[str], said: str
) -> None:
    assert run(arguments) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert said in err
    assert "pass" not in err.replace("password", "")
    assert err.count("\n") == 1


def test_a_server_that_does_not_answer_is_one_line(capfd: Capture) -> None:
    assert run(["ask", "--endpoint", URL, "Hello"]) == 1
    assert capfd.readouterr().err.startswith("q35chat: cannot reach 127.0.0.1:1")


@pytest.mark.parametrize(
    ("text", "base", "root"),
    [
        ("http://host:8000/v1", "http://host:8000/v1", "http://host:8000"),
        ("http://host:8000", "http://host:8000/v1", "http://host:8000"),
        ("https://host/proxy/v1/", "https://host/proxy/v1", "https://host/proxy"),
        ("http://[::1]:80/v1", "http://[::1]:80/v1", "http://[::1]:80"),
        ("http://host/api", "http://host/api", "http://host/api"),
    ],
)
def test_an_address_is_read_as_clients_of_the_protocol_read_it(
    text: str, base: str, root: str
) -> None:
    address = choice.read_address(text)
    assert (address.base, address.root) == (base, root)


def test_a_server_of_the_settings_is_in_the_list_of_models_and_takes_over(tmp_path: Path) -> None:
    fake = FakeVllm()
    with fake.serving() as server, Store(tmp_path / "kept") as store:
        settings = Settings(endpoint={"cluster": EndpointEntry(server.address.base)})
        options = ChatOptions(threads=2, max_image_tokens=64)
        workspace = stored_workspace(store, options, settings, lambda _: None)
        (entry,) = [one for one in workspace.models() if one.name == "cluster"]
        assert entry.facts == f"server · {server.address.base}"
        assert entry.remote
        workspace.use(entry.folder)
        assert workspace.model.remote == server.address.base
        assert workspace.new().settings().max_image_tokens == 64


def test_a_key_that_is_none_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER_KEY", "sk-1\r\nX-Evil: 1")
    with pytest.raises(UsageError, match="CLUSTER_KEY holds no key") as caught:
        choice.key_from_environment("CLUSTER_KEY")
    assert "sk-1" not in str(caught.value)


def test_a_key_comes_from_the_keyring_where_the_settings_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = {("q35chat", "cluster"): "sk-ring"}
    errors = types.ModuleType("keyring.errors")
    errors.KeyringError = OSError  # type: ignore[attr-defined]
    ring = types.ModuleType("keyring")
    ring.get_password = lambda *names: kept.get(names)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", ring)
    monkeypatch.setitem(sys.modules, "keyring.errors", errors)
    assert choice.key_from_keyring("cluster").reveal() == "sk-ring"
    with pytest.raises(UsageError, match="keyring set q35chat other"):
        choice.key_from_keyring("other")
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(UsageError, match="pip install"):
        choice.key_from_keyring("cluster")


NO_NETWORK = """
import socket, sys

def watch(event, arguments):
    if event in ("socket.getaddrinfo", "socket.sendto", "socket.bind") or (
        event == "socket.connect" and arguments[0].family != socket.AF_UNIX
    ):
        with open({log!r}, "a") as log:
            log.write(f"{{event}} {{arguments[1:]}}\\n")
        raise OSError(f"no network here: {{event}}")

sys.addaudithook(watch)
"""


def test_nothing_leaves_the_machine_where_no_server_is_named(tmp_path: Path) -> None:
    log, site = tmp_path / "attempts", tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(NO_NETWORK.format(log=str(log)))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(site), *sys.path[:1], str(Path.cwd())]),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "q35chat", "ask", "--max-new-tokens", "4", "Hello"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, log.exists()) == (0, False), done.stderr
    assert done.stdout.strip()
    reaching = "import socket; socket.create_connection(('127.0.0.1', 1))"
    watched = subprocess.run(
        [sys.executable, "-c", reaching], env=environment, capture_output=True, check=False
    )
    assert watched.returncode == 1
    assert log.exists()  # the watch does watch
