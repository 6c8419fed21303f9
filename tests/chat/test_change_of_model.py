"""Another model, or the same one anew, under conversations that are open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.chat.values import ChatSettings, SamplingSettings
from q35chat.chat.workspace import Workspace
from q35chat.errors import BundleError, RuntimeFailure, UsageError
from q35chat.store import Store
from tests.chat.scripted_chat import finish
from tests.doubles.scripted_backend import ScriptedBackend

SETTINGS = ChatSettings(sampling=SamplingSettings(temperature=0.1))
OTHER = ChatSettings(sampling=SamplingSettings(temperature=0.9))


class Models:
    """What was loaded, in order, and whether loading works."""

    def __init__(self) -> None:
        self.loaded: list[ScriptedBackend] = []
        self.folders: list[Path] = []
        self.error: Exception | None = None

    def load(self) -> tuple[ScriptedBackend, ChatSettings]:
        return self._add(), SETTINGS

    def load_bundle(self, folder: Path) -> tuple[ScriptedBackend, ChatSettings]:
        self.folders.append(folder)
        return self._add(), OTHER

    def _add(self) -> ScriptedBackend:
        if self.error is not None:
            raise self.error
        backend = ScriptedBackend()
        self.loaded.append(backend)
        backend.model = replace(backend.model, name=f"model {len(self.loaded)}")
        return backend


@pytest.fixture
def models() -> Models:
    return Models()


@pytest.fixture
def workspace(models: Models, tmp_path: Path) -> Iterator[Workspace]:
    with Store(tmp_path) as store:
        space = Workspace(store, models.load, models.load_bundle, reads_ahead=False)
        space.load()
        yield space


def test_a_restart_loads_anew_and_frees_the_former_model(
    workspace: Workspace, models: Models
) -> None:
    workspace.restart()
    assert [model.closed for model in models.loaded] == [True, False]


def test_an_open_conversation_goes_on_over_the_restarted_model(
    workspace: Workspace, models: Models
) -> None:
    chat = workspace.new()
    finish(chat.send("one"))
    workspace.restart()
    assert workspace.open(chat.id) is not chat
    again = workspace.reopen(chat)
    finish(again.send("two"))
    assert [step.turn.text for step in again.steps][::2] == ["one", "two"]
    assert [len(model.prompts) for model in models.loaded] == [1, 1]


def test_each_answer_keeps_the_name_of_the_model_that_wrote_it(workspace: Workspace) -> None:
    chat = workspace.new()
    finish(chat.send("one"))
    workspace.use(Path("new"))
    again = workspace.reopen(chat)
    finish(again.send("two"))
    assert [step.model for step in again.steps] == ["", "model 1", "", "model 2"]


def test_a_conversation_that_is_not_stored_yet_is_reopened(workspace: Workspace) -> None:
    chat = workspace.new()
    workspace.restart()
    assert workspace.reopen(chat).id == chat.id
    assert workspace.listed() == []


def test_after_a_restart_that_failed_there_is_no_model_until_one_works(
    workspace: Workspace, models: Models
) -> None:
    chat = workspace.new()
    models.error = RuntimeFailure("the device is gone")
    with pytest.raises(RuntimeFailure, match="the device is gone"):
        workspace.restart()
    with pytest.raises(UsageError, match="not loaded yet"):
        workspace.new()
    models.error = None
    workspace.restart()
    finish(workspace.reopen(chat).send("one"))


def test_a_model_that_cannot_even_be_closed_is_replaced(
    workspace: Workspace, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeFailure("it does not answer")

    monkeypatch.setattr(models.loaded[0], "close", broken)
    workspace.restart()
    assert len(models.loaded) == 2


def test_another_bundle_answers_from_now_on_and_after_a_restart(
    workspace: Workspace, models: Models
) -> None:
    workspace.use(Path("new"))
    assert models.loaded[0].closed
    workspace.restart()
    assert models.folders == [Path("new"), Path("new")]


def test_a_bundle_that_cannot_be_loaded_leaves_the_present_model(
    workspace: Workspace, models: Models
) -> None:
    chat = workspace.new()
    models.error = BundleError("new is damaged")
    with pytest.raises(BundleError):
        workspace.use(Path("new"))
    assert not models.loaded[0].closed
    assert workspace.reopen(chat) is chat
    models.error = None
    workspace.restart()
    assert models.folders == [Path("new")]


def test_sampling_follows_the_model_unless_the_user_chose_it(workspace: Workspace) -> None:
    own, chosen = workspace.new(), workspace.new()
    sampling = replace(SETTINGS.sampling, temperature=0.5)
    chosen.change_settings(replace(SETTINGS, sampling=sampling, system_prompt="Be kind."))
    workspace.use(Path("new"))
    assert workspace.reopen(own).settings().sampling.temperature == 0.9
    assert workspace.reopen(chosen).settings().sampling.temperature == 0.5
    assert workspace.reopen(chosen).settings().system_prompt == "Be kind."


def test_without_a_way_to_load_bundles_the_model_stays(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        space = Workspace(store, Models().load)
        space.load()
        with pytest.raises(UsageError, match="--model-dir"):
            space.use(Path("new"))
        assert space.model.name == "model 1"
