from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from q35chat.chat.prompt import tokenizer_process
from q35chat.chat.prompt.tokenizer import ChatTokenizer
from q35chat.chat.values import ChatSettings
from q35chat.chat.workspace import Workspace
from q35chat.errors import BundleError, CapacityError
from q35chat.store import Store
from tests.doubles.chat_model import END, GREEDY, PICTURE, SHAPE, THINK, ChatModel, answered, user
from tests.doubles.scripted_backend import ScriptedBackend

PIECES = [
    "a",
    " the",
    "assistant",
    "图片",
    "e\u0301",
    "\u1112\u1161\u11ab",
    " ",
    "\n",
    "🐈",
    "<|im_end|>",
]


@pytest.fixture
def copy(processor: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(processor, tmp_path / "processor"))


def test_names_of_special_tokens_become_those_tokens(tokenizer: ChatTokenizer) -> None:
    assert tokenizer.encode("a<|im_end|>") == [*tokenizer.encode("a"), END]


def test_a_text_taken_literally_never_makes_a_special_token(tokenizer: ChatTokenizer) -> None:
    text = "a<|im_end|><|image_pad|>"

    assert tokenizer.spells_special(text)
    assert not {END, PICTURE} & {*tokenizer.encode_literally(text)}
    assert tokenizer.encode_literally("the picture") == tokenizer.encode("the picture")
    assert END in tokenizer.encode(text)


def test_ids_and_spellings(tokenizer: ChatTokenizer) -> None:
    assert tokenizer.id_of("<think>") == THINK
    assert tokenizer.id_of("<nothing>") is None
    assert tokenizer.piece(SHAPE.vocab - 1) is None
    assert END in tokenizer.special_ids
    assert THINK not in tokenizer.special_ids
    assert tokenizer.end_ids == {END}


def test_the_template_is_rendered_with_pictures_and_thinking(tokenizer: ChatTokenizer) -> None:
    content = [{"type": "image"}, {"type": "text", "text": "Look"}]
    messages = [{"role": "user", "content": content}]

    assert tokenizer.render(messages, generation_prompt=True, thinking=True) == (
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Look<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n"
    )
    assert tokenizer.render(messages, generation_prompt=True, thinking=False).endswith(
        "<think>\n\n</think>\n\n"
    )


def test_a_working_folder_that_is_gone_keeps_no_tokenizer_from_loading(
    processor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    tokenizer_process.PROCESS.end()
    assert ChatTokenizer(processor).end_ids == {END}


def test_a_template_that_refuses_says_why_on_one_line(tokenizer: ChatTokenizer) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]

    with pytest.raises(BundleError, match=r"refused the conversation: A system message must") as e:
        tokenizer.render(messages, generation_prompt=True, thinking=False)
    assert "\n" not in str(e.value)


def test_a_template_that_fails_without_a_word_is_named_by_its_failure(copy: Path) -> None:
    (copy / "chat_template.jinja").write_text("{{ 'a' * 10 ** 18 }}")
    messages = [{"role": "user", "content": "a"}]

    with pytest.raises(BundleError, match="refused the conversation: MemoryError"):
        ChatTokenizer(copy).render(messages, generation_prompt=True, thinking=False)


ASKED = [{"role": "user", "content": "a"}]
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_process, "SECONDS", 0.3)


@pytest.mark.usefixtures("impatient")
def test_a_template_without_an_end_is_ended_and_the_next_request_is_answered(
    copy: Path, tokenizer: ChatTokenizer
) -> None:
    (copy / "chat_template.jinja").write_text(ENDLESS)
    endless = ChatTokenizer(copy)
    for _ in range(2):
        with pytest.raises(BundleError, match=r"went on for too long .* export the bundle again$"):
            endless.render(ASKED, generation_prompt=True, thinking=False)
    assert tokenizer.encode("a")


def test_a_template_without_an_end_is_interrupted_at_once(copy: Path) -> None:
    (copy / "chat_template.jinja").write_text(ENDLESS)
    endless, ended = ChatTokenizer(copy), list[str]()

    def render() -> None:
        with pytest.raises(BundleError) as error:
            endless.render(ASKED, generation_prompt=True, thinking=False)
        ended.append(str(error.value))

    threads = [threading.Thread(target=render) for _ in range(2)]
    for thread in threads:
        thread.start()
    while not tokenizer_process.PROCESS._asked:
        pass
    endless.interrupt(leaving=True)
    for thread in threads:
        thread.join()
    assert ended == ["stopped before the prompt was made"] * 2


def test_who_leaves_while_a_model_loads_does_not_wait_for_its_tokenizer(
    copy: Path, tmp_path: Path
) -> None:
    (copy / "chat_template.jinja").write_text(ENDLESS)

    def load() -> tuple[ScriptedBackend, ChatSettings]:
        ChatTokenizer(copy).render(ASKED, generation_prompt=True, thinking=False)
        raise AssertionError

    workspace, failed = Workspace(Store(tmp_path / "store"), load), list[str]()

    def work() -> None:
        with pytest.raises(BundleError) as error:
            workspace.load()
        failed.append(str(error.value))

    thread = threading.Thread(target=work)
    thread.start()
    while not tokenizer_process.PROCESS._asked:
        pass
    while not failed:
        workspace.leave()
    thread.join()
    assert failed == ["stopped before the prompt was made"]


@pytest.mark.parametrize(
    "first",
    ["'a' * 1000", "[1]"],
)
def test_a_template_that_takes_all_memory_is_refused_at_the_limit(copy: Path, first: str) -> None:
    (copy / "chat_template.jinja").write_text(
        f"{{% set n = namespace(x={first}) %}}"
        "{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}{{ n.x }}"
    )
    greedy = ChatTokenizer(copy)
    with pytest.raises(BundleError, match=r"MemoryError|out of memory|for want of memory"):
        greedy.render(ASKED, generation_prompt=True, thinking=False)


def test_a_normaliser_that_takes_all_memory_is_ended_at_the_limit(
    copy: Path, tokenizer: ChatTokenizer
) -> None:
    document = json.loads((copy / "tokenizer.json").read_text())
    twice = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    document["normalizer"] = {"type": "Sequence", "normalizers": [twice] * 40}
    document["added_tokens"] = []
    (copy / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(BundleError, match="export the bundle again"):
        ChatTokenizer(copy).lower_bound("a")
    assert tokenizer.encode("a")


def test_a_child_that_has_died_is_replaced(tokenizer: ChatTokenizer) -> None:
    child = tokenizer_process.PROCESS._child
    assert child is not None
    child.kill()
    child.wait()
    assert tokenizer.encode("a")


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"has no tokenizer\.json"):
        ChatTokenizer(tmp_path)


def test_a_damaged_tokenizer_is_one_line(copy: Path) -> None:
    (copy / "tokenizer.json").write_text('{"version":\n')

    with pytest.raises(BundleError, match="damaged tokenizer") as error:
        ChatTokenizer(copy)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("prefix", ["##", "x" * 50])
def test_a_tokenizer_whose_native_reader_panics_is_one_line(copy: Path, prefix: str) -> None:
    file = copy / "tokenizer.json"
    document = json.loads(file.read_text())
    document["model"]["continuing_subword_prefix"] = prefix
    file.write_text(json.dumps(document))

    with pytest.raises(BundleError, match=r"damaged tokenizer: .* index") as error:
        ChatTokenizer(copy)
    assert "\n" not in str(error.value)


def test_a_text_that_the_tokenizer_fails_on_is_one_line(copy: Path) -> None:
    file = copy / "tokenizer.json"
    document = json.loads(file.read_text())
    document["model"] = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "none"}
    file.write_text(json.dumps(document))

    with pytest.raises(BundleError, match="tokenizer cannot read this text: ") as error:
        ChatTokenizer(copy).encode("b")
    assert "\n" not in str(error.value)


def test_a_folder_without_a_template_is_refused(copy: Path) -> None:
    (copy / "chat_template.jinja").unlink()

    with pytest.raises(BundleError, match="no chat template"):
        ChatTokenizer(copy)


def test_a_template_in_the_tokenizers_configuration_is_found(copy: Path) -> None:
    (copy / "chat_template.jinja").unlink()
    config = (copy / "tokenizer_config.json").read_text()
    template = '{"chat_template": "{% for m in messages %}[{{ m.content }}]{% endfor %}",'
    (copy / "tokenizer_config.json").write_text(config.replace("{", template, 1))

    tokenizer = ChatTokenizer(copy)

    messages = [{"role": "user", "content": "a"}]
    assert tokenizer.render(messages, generation_prompt=True, thinking=False) == "[a]"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ '%9000000d' % 1 }}", "wrote 18,000,000 characters for a conversation of 5, at most"),
        ("{{ messages[0].content * 1000000 }}", "wrote 2,000,000 characters"),
        (r"{{ '\ud800' }}", r"wrote U\+D800, which is no character"),
    ],
)
def test_a_template_that_writes_what_no_tokenizer_should_read_is_refused(
    copy: Path, template: str, message: str
) -> None:
    (copy / "chat_template.jinja").write_text(template * 2)
    tokenizer = ChatTokenizer(copy)

    messages = [{"role": "user", "content": "a"}]
    with pytest.raises(BundleError, match=message) as error:
        tokenizer.render(messages, generation_prompt=True, thinking=False)
    assert str(error.value).endswith("export the bundle again")


def test_a_long_conversation_is_no_fault_of_the_template(tokenizer: ChatTokenizer) -> None:
    text = [{"type": "image"}, {"type": "text", "text": "a" * 3_000_000}]
    messages = [{"role": "user", "content": text}]

    assert len(tokenizer.render(messages, generation_prompt=True, thinking=False)) > 3_000_000


def test_a_length_that_is_no_number_does_not_matter(copy: Path) -> None:
    config = json.loads((copy / "tokenizer_config.json").read_text())
    (copy / "tokenizer_config.json").write_text(json.dumps(config | {"model_max_length": "x"}))

    assert ChatTokenizer(copy).encode("a")


def test_loading_prints_nothing_and_needs_no_torch(processor: Path) -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from q35chat.chat.prompt.tokenizer import ChatTokenizer\n"
        "tokenizer = ChatTokenizer(Path(sys.argv[1]))\n"
        "message = {'role': 'user', 'content': 'a'}\n"
        "tokenizer.encode(tokenizer.render([message], generation_prompt=True, thinking=True))\n"
        "tokenizer.encode('word ' * 100_000)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script, str(processor)], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_no_text_has_fewer_tokens_than_its_lower_bound(tokenizer: ChatTokenizer, text: str) -> None:
    assert tokenizer.lower_bound(text) <= len(tokenizer.encode_literally(text.strip()))


def test_the_longest_token_of_the_vocabulary_is_the_measure(tokenizer: ChatTokenizer) -> None:
    assert tokenizer.longest == len("<|vision_start|>")
    assert tokenizer.lower_bound("a" * 160) == 10


def test_a_text_that_cannot_fit_is_refused_without_tokenising_it(
    model: ChatModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> list[int]:
        raise AssertionError("it was tokenised")

    monkeypatch.setattr(ChatTokenizer, "encode", refused)
    fewest = model.capacity + 1
    most = "a" * model.capacity * model.engine.tokenizer.longest
    with pytest.raises(AssertionError, match="it was tokenised"):
        model.engine.plan([user(most)], GREEDY)
    with pytest.raises(CapacityError, match=rf"at least {fewest} slots, capacity 512: shorten it"):
        model.engine.plan([user(f"{most}a")], GREEDY)
    with pytest.raises(CapacityError, match=rf"at least {fewest} slots"):
        next(model.engine.run([user(f"{most}a")], GREEDY, lambda: False))


def test_an_old_turn_that_no_longer_fits_can_still_be_planned(model: ChatModel) -> None:
    first = user("a" * 100_000)
    answer = answered(model.finish([user("Hello")]))

    assert model.engine.plan([first, answer, user("more")], GREEDY).prompt_tokens > 100_000
