from __future__ import annotations

from dataclasses import replace
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import q35chat.bundle.foreign
import q35chat.tui.app
from q35chat.ascend.options import DEFAULT_NPU, NpuOptions
from q35chat.chat.values import ChatSettings, SamplingSettings
from q35chat.chat.workspace import Workspace
from q35chat.commands import model
from q35chat.commands.chat import ChatOptions, open_chat, stored_workspace
from q35chat.commands.export_process import ChildJob
from q35chat.commands.model import LoadedModel, ModelChoice
from q35chat.commands.options import DEFAULT_STATE_CACHE_MIB
from q35chat.commands.prompt_input import MAX_PROMPT_BYTES
from q35chat.errors import StoreError, UsageError
from q35chat.settings import Settings, load_settings, settings_path
from q35chat.store import Store
from tests.cli.scripted import EventBackend, Terminal, loaded, recorded, turn_events


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the screen was opened with, and the model it loaded."""
    seen: list[Any] = []

    def run(workspace: Workspace, _: Settings, **options: Any) -> int:
        workspace.load()
        seen.append((workspace.model, workspace.new().settings(), options))
        return 0

    def load(choice: ModelChoice, threads: int | None) -> LoadedModel:
        seen.append((choice, threads))
        return loaded(EventBackend(), SamplingSettings(temperature=0.6))

    monkeypatch.setattr(q35chat.tui.app, "run", run)
    monkeypatch.setattr(model, "load_model", load)
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    return seen


def test_the_screen_opens_over_the_chosen_model(opened: list[Any]) -> None:
    settings_path().parent.mkdir(parents=True)
    settings_path().write_text("thinking = true\nmax_image_tokens = 99\n")
    options = ChatOptions(
        model_dir=Path("m"), threads=2, session="s1", images=[Path("a.png")], prompt="Hi"
    )
    assert open_chat(options, recorded(terminal=True).console) == 0
    (choice, threads), (shown, settings, given) = opened
    assert (choice, threads) == (ModelChoice(Path("m"), state_cache_mib=DEFAULT_STATE_CACHE_MIB), 2)
    assert shown.name == "scripted"
    assert settings.sampling.temperature == 0.6
    assert (settings.thinking, settings.max_image_tokens) == (True, 99)
    exporter = given.pop("exporter")
    assert isinstance(exporter.job(), ChildJob)
    assert exporter.room(Path()) > 0
    assert given == {
        "conversation_id": "s1",
        "images": [Path("a.png")],
        "prompt": "Hi",
        "pictures": None,
        "problems": [],
    }


def test_settings_of_an_earlier_version_are_taken_over_before_the_screen_opens(
    opened: list[Any],
) -> None:
    folder = settings_path().parent
    folder.mkdir(parents=True)
    (folder / "interface.toml").write_text("notify = false\n")
    assert open_chat(ChatOptions(model_dir=Path("m")), recorded(terminal=True).console) == 0
    assert "notify = false" in settings_path().read_text()
    assert opened[-1][2]["problems"] == []
    (folder / "interface.toml").write_text("theme = 1\n")
    assert open_chat(ChatOptions(model_dir=Path("m")), recorded(terminal=True).console) == 0
    assert "interface.toml, line 1: theme" in opened[-1][2]["problems"][0]


def test_without_a_terminal_the_screen_is_not_opened(opened: list[Any]) -> None:
    with pytest.raises(UsageError, match="the chat needs a terminal; for one answer use"):
        open_chat(ChatOptions(model_dir=Path("m")), recorded().console)
    assert opened == []


def test_plain_needs_no_terminal(opened: list[Any]) -> None:
    assert open_chat(ChatOptions(model_dir=Path("m"), plain=True), recorded().console) == 0
    assert len(opened) == 1


def test_plain_refuses_pictures_before_it_loads_anything(opened: list[Any]) -> None:
    options = ChatOptions(model_dir=Path("m"), plain=True, pictures="kitty")
    with pytest.raises(UsageError, match="--plain shows no pictures; drop --pictures kitty or it"):
        open_chat(options, recorded().console)
    assert opened == []
    assert open_chat(replace(options, pictures="none"), recorded().console) == 0


def test_a_thinking_budget_turns_thinking_on_in_new_chats(opened: list[Any]) -> None:
    options = ChatOptions(model_dir=Path("m"), thinking_budget=50)
    assert open_chat(options, recorded(terminal=True).console) == 0
    settings = opened[-1][1]
    assert (settings.thinking, settings.thinking_budget) == (True, 50)


@pytest.mark.parametrize(("given", "kept"), [(True, False), (False, True)])
def test_thinking_on_the_command_line_wins_over_the_settings_in_new_chats(
    given: bool, kept: bool, opened: list[Any]
) -> None:
    settings_path().parent.mkdir(parents=True)
    settings_path().write_text(f"thinking = {str(kept).lower()}\n")
    for asked, thinks in ((None, kept), (given, given)):
        options = ChatOptions(model_dir=Path("m"), thinking=asked)
        assert open_chat(options, recorded(terminal=True).console) == 0
        assert opened[-1][1].thinking is thinks


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"thinking_budget": 50}, "--thinking-budget"),
        ({"thinking": True}, "--thinking"),
        ({"thinking": False}, "--no-thinking"),
        ({"max_image_tokens": 64}, "--max-image-tokens"),
    ],
)
@pytest.mark.parametrize(
    ("opens", "opener"), [({"session": "s1"}, "--session"), ({"continues": True}, "--continue")]
)
def test_what_an_old_chat_has_its_own_of_is_for_new_chats(
    given: dict[str, Any],
    name: str,
    opens: dict[str, Any],
    opener: str,
    plain: bool,
    opened: list[Any],
) -> None:
    options = ChatOptions(model_dir=Path("m"), plain=plain, **given, **opens)
    said = f"^{name} is for a new chat; {opener} opens one with its own$"
    with pytest.raises(UsageError, match=said):
        open_chat(options, recorded(terminal=True).console)
    assert opened == []


@pytest.mark.parametrize("target", ["cpu", "ascend-310p"])
def test_another_bundle_takes_of_the_command_line_what_suits_its_target(
    target: str, opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = SimpleNamespace(manifest=SimpleNamespace(target=target))
    monkeypatch.setattr(q35chat.bundle.foreign, "open_bundle", lambda *_, **__: bundle)
    options = ChatOptions(model_dir=Path("m"), threads=2, npu=NpuOptions(1, "swap"))
    with Store() as store:
        workspace = stored_workspace(store, options, Settings(), lambda _: None)
        workspace.load()
        workspace.use(Path("other"))
    on_cpu, kept = target == "cpu", DEFAULT_STATE_CACHE_MIB
    assert opened == [
        (ModelChoice(Path("m"), npu=options.npu, state_cache_mib=kept), 2),
        (ModelChoice(
            Path("other"),
            npu=DEFAULT_NPU if on_cpu else options.npu,
            state_cache_mib=kept,
        ),
         2 if on_cpu else None),
    ]  # fmt: skip


def test_a_budget_for_no_thinking_is_refused(opened: list[Any]) -> None:
    options = ChatOptions(model_dir=Path("m"), thinking=False, thinking_budget=50)
    with pytest.raises(UsageError, match="--no-thinking leaves no reasoning to limit"):
        open_chat(options, recorded(terminal=True).console)
    assert opened == []


def keep_two_chats() -> tuple[str, str]:
    """The ids of two conversations, the latest first."""
    backend = EventBackend(turn_events("Hi"))
    with Store() as store:
        workspace = Workspace(store, lambda: (backend, ChatSettings()))
        workspace.load()
        for text in ("older", "newer"):
            list(workspace.new().send(text))
        newer, older = store.listed()
    assert (newer.title, older.title) == ("newer", "older")
    return newer.id, older.id


def test_continue_opens_the_latest_chat_on_screen(opened: list[Any]) -> None:
    latest, _ = keep_two_chats()
    options = ChatOptions(model_dir=Path("m"), continues=True)
    assert open_chat(options, recorded(terminal=True).console) == 0
    assert opened[-1][2]["conversation_id"] == latest


def test_continue_goes_on_in_the_latest_chat_line_by_line(
    opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    latest, older = keep_two_chats()
    options = ChatOptions(model_dir=Path("m"), plain=True, continues=True, prompt="and now?")
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO()))
    monkeypatch.setattr(model, "load_model", lambda *_: loaded(EventBackend(turn_events("Hi"))))
    assert open_chat(options, recorded().console) == 0
    with Store() as store:
        turns = {kept.id: kept.turns for kept in store.listed()}
    assert turns == {latest: 2, older: 1}


@pytest.mark.parametrize("plain", [False, True])
def test_continue_without_any_chat_says_so_before_anything_is_loaded(
    plain: bool, opened: list[Any]
) -> None:
    options = ChatOptions(model_dir=Path("m"), plain=plain, continues=True)
    with pytest.raises(StoreError, match="There is no chat yet"):
        open_chat(options, recorded(terminal=True).console)
    assert opened == []


def test_continue_and_session_together_are_refused(opened: list[Any]) -> None:
    options = ChatOptions(model_dir=Path("m"), continues=True, session="s1")
    with pytest.raises(UsageError, match="--continue is the latest chat, --session another"):
        open_chat(options, recorded(terminal=True).console)
    assert opened == []


def test_no_prompt_over_the_limit_is_asked_line_by_line(opened: list[Any]) -> None:
    options = ChatOptions(model_dir=Path("m"), plain=True, prompt="x" * (MAX_PROMPT_BYTES + 1))
    with pytest.raises(UsageError, match="the prompt is over the limit of 1,000,000 bytes"):
        open_chat(options, recorded().console)
    assert opened == []


def test_what_is_kept_for_all_new_chats_holds_in_this_run_and_in_the_next(
    opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[ChatSettings] = []

    def run(workspace: Workspace, _: Settings, **options: Any) -> int:
        workspace.load()
        begun.append(workspace.new().settings())
        assert workspace.begin_as(replace(begun[0], system_prompt="Be brief.", thinking=False))
        begun.append(workspace.new().settings())
        begun.append(workspace.personas()[0].over(begun[0]))
        return 0

    monkeypatch.setattr(q35chat.tui.app, "run", run)
    given = ChatOptions(model_dir=Path("m"), thinking=True)
    assert open_chat(given, recorded(terminal=True).console) == 0
    assert [(it.system_prompt, it.thinking) for it in begun] == [
        ("", True), ("Be brief.", False), ("Be brief.", False)
    ]  # fmt: skip
    assert load_settings() == Settings(system="Be brief.")


def test_a_default_persona_that_stands_before_what_is_kept_is_told(
    opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings_path().parent.mkdir(parents=True)
    settings_path().write_text("default_persona = 'x'\n[persona.x]\nsystem = 'Arr.'\n")
    kept: list[bool] = []

    def run(workspace: Workspace, _: Settings, **options: Any) -> int:
        workspace.load()
        kept.append(workspace.begin_as(ChatSettings(system_prompt="Be brief.")))
        kept.append(workspace.begin_as(workspace.new().settings()))
        return 0

    monkeypatch.setattr(q35chat.tui.app, "run", run)
    assert open_chat(ChatOptions(model_dir=Path("m")), recorded(terminal=True).console) == 0
    assert kept == [False, True]


def test_a_chat_of_another_model_says_line_by_line_who_wrote_its_last_answer(
    opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(choice: ModelChoice, _: int | None) -> LoadedModel:
        backend = EventBackend(turn_events("Hi"))
        backend.model = replace(backend.model, name=choice.path.name)
        return loaded(backend)

    monkeypatch.setattr(model, "load_model", load)
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"")))
    said = []
    for name in ("first", "second"):
        seen = recorded()
        options = ChatOptions(
            model_dir=Path(name), plain=True, prompt="Hello", continues=name == "second"
        )
        assert open_chat(options, seen.console) == 0
        said.append(seen.err.getvalue())
    assert "wrote the last answer" not in said[0]
    assert "first wrote the last answer; second writes the next" in said[1]
