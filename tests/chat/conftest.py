from __future__ import annotations

from pathlib import Path

import pytest

from q35chat.chat.conversation import Conversation
from q35chat.chat.prompt.tokenizer import ChatTokenizer
from q35chat.chat.values import Attachment
from q35chat.chat.workspace import Workspace
from tests.chat.scripted_chat import open_workspace
from tests.doubles.chat_model import SHAPE, ChatModel
from tests.doubles.scripted_backend import ScriptedBackend
from tests.support.tokenizer import write_processor_files


@pytest.fixture(scope="session")
def processor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `processor` folder with the test tokenizer's files."""
    folder = tmp_path_factory.mktemp("bundle") / "processor"
    folder.mkdir()
    write_processor_files(folder, SHAPE)
    return folder


@pytest.fixture(scope="session")
def tokenizer(processor: Path) -> ChatTokenizer:
    return ChatTokenizer(processor)


@pytest.fixture
def model(processor: Path) -> ChatModel:
    return ChatModel(processor)


@pytest.fixture
def backend() -> ScriptedBackend:
    return ScriptedBackend()


@pytest.fixture
def workspace(tmp_path: Path, backend: ScriptedBackend) -> Workspace:
    return open_workspace(tmp_path, backend)


@pytest.fixture
def chat(workspace: Workspace) -> Conversation:
    return workspace.new()


@pytest.fixture
def picture(tmp_path: Path, chat: Conversation) -> Attachment:
    path = tmp_path / "cat.png"
    path.write_bytes(b"a cat")
    return chat.attach(path)
