from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from q35chat.chat.values import ChatSettings
from q35chat.server.service import Service
from q35chat.states.memory import MemoryPool
from tests.doubles.chat_model import SHAPE, ChatModel
from tests.server.asking import Asking
from tests.support.tokenizer import write_processor_files


@pytest.fixture(scope="session")
def processor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `processor` folder with the test tokenizer's files."""
    folder = tmp_path_factory.mktemp("bundle") / "processor"
    folder.mkdir()
    write_processor_files(folder, SHAPE)
    return folder


@pytest.fixture
def pool() -> MemoryPool:
    return MemoryPool(1 << 30)


@pytest.fixture
def model(processor: Path, pool: MemoryPool) -> ChatModel:
    return ChatModel(processor, capacity=2048, states=pool)


@pytest.fixture
def service(model: ChatModel) -> Iterator[Service]:
    defaults = ChatSettings(sampling=model.engine.sampling_defaults)
    service = Service.over(model.engine, defaults, most_waiting=2, most_body=1 << 20)
    yield service
    service.desk.close()
    service.desk.wait()


@pytest.fixture
def asking(service: Service) -> Asking:
    return Asking(service)
