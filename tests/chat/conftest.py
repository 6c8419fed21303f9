from __future__ import annotations

from pathlib import Path

import pytest

from q35chat.chat.tokenizer import ChatTokenizer
from tests.doubles.chat_model import SHAPE, ChatModel
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
    return ChatTokenizer.load(processor)


@pytest.fixture
def model(processor: Path) -> ChatModel:
    return ChatModel(processor)
