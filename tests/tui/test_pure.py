"""The parts without a screen: texts, pieces, pastes, numbers."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from q35chat.chat.events import (
    Event,
    PrefillProgress,
    PromptPlan,
    Timings,
    Token,
    Usage,
    VisionProgress,
)
from q35chat.chat.service import Forecast, ModelInfo
from q35chat.chat.values import ChatSettings, Turn
from q35chat.file_kinds import is_picture
from q35chat.tui.chat.completion import listing, path_word, slash_choices
from q35chat.tui.chat.drafts import Drafts
from q35chat.tui.chat.meter import Meter
from q35chat.tui.chat.paste import (
    file_before,
    file_paths,
    fold_label,
    folds,
    is_existing_path,
    typed_files,
    unfold,
)
from q35chat.tui.chat.running_turn import LONGEST_S, SHORTEST_S, Batch, Pacer, RunningTurn
from q35chat.tui.clipboard import OSC52_LIMIT, copy, osc52, tool_commands
from q35chat.tui.commands import BY_ID, BY_SLASH, COMMANDS, key_label, parse_slash
from q35chat.tui.fields import LIMIT_FIELDS, SAMPLING_FIELDS
from q35chat.tui.images.thumbnail import half_blocks
from q35chat.tui.markdown.source import conversation_markdown
from q35chat.tui.text import (
    clean,
    millis,
    model_facts,
    one_line,
    packed,
    rate,
    seconds,
    usage_items,
)
from q35chat.tui.widgets.bars import hint_line
from q35chat.tui.widgets.editor import History
from q35chat.tui.widgets.meters import columns, glyphs
from tests.tui.on_the_way import resting
from tests.tui.support import picture_bytes, picture_file


@given(st.text(), st.text())
def test_cleaned_fragments_join_to_the_cleaned_whole(first: str, second: str) -> None:
    assert clean(first) + clean(second) == clean(first + second)


@given(st.text())
def test_cleaned_text_holds_nothing_a_terminal_obeys(text: str) -> None:
    assert not any(
        (ord(character) < 0x20 and character not in "\n\t") or 0x7F <= ord(character) < 0xA0
        for character in clean(text)
    )


def test_a_line_is_cut_to_its_cells_with_an_ellipsis() -> None:
    assert one_line("two\nlines", 20) == "two lines"
    assert one_line("abcdefgh", 5) == "abcd…"
    assert one_line("二分查找算法", 7) == "二分查…"


def test_times_and_rates_show_the_digits_that_matter() -> None:
    assert [millis(value) for value in (0.84, 54.3, 1_240)] == ["0.8 ms", "54 ms", "1.2 s"]
    spans = [seconds(value) for value in (0, 0.004, 0.038, 0.42, 12.3, 185)]
    assert spans == ["0.0 s", "4.0 ms", "38 ms", "0.4 s", "12 s", "3 min 05 s"]
    assert [rate(value) for value in (18.44, 1_812)] == ["18.4 tok/s", "1,812 tok/s"]


def test_the_usage_line_says_what_was_read_reused_and_made() -> None:
    timings = Timings(0, 0, 400, (50.0,) * 143, (54.35,) * 143)
    usage = Usage(2_016, 1_204, 0, 0, 143, 4_096, 2_159, timings)
    assert "  ".join(usage_items(usage)) == (
        "↑812 new · 1,204 reused  ↓143  18.4 tok/s  54 ms/step  first token 0.4 s"
    )


def test_reasoning_is_counted_once_among_the_tokens_made() -> None:
    usage = Usage(12, 0, 0, 40, 143, 4_096, 155, Timings(0, 0, 400, (), ()))
    assert "↓143" in usage_items(usage)


def test_the_usage_says_which_graphs_read_the_prompt() -> None:
    route = "812 tokens: prefill 512 + 512, then decode 3, about 2100 ms"
    usage = Usage(812, 0, 0, 0, 1, 4_096, 813, Timings(0, 0, 400, (), (), route))
    assert usage_items(usage)[-1] == "read by prefill 512 + 512, then decode 3"


@given(st.integers(8, 120))
def test_numbers_are_never_torn_apart(width: int) -> None:
    items = ["↑812 new · 1,204 reused", "↓143", "18.4 tok/s", "54 ms/step", "first token 0.4 s"]
    lines = packed(items, width)
    assert all(cell_len(line) <= width for line in lines)
    if width >= max(map(cell_len, items)):
        assert "  ".join(lines) == "  ".join(items)
        assert [item for line in lines for item in line.split("  ")] == items


def test_target_precision_and_device_are_said_once() -> None:
    demo = ModelInfo("Demo", "cpu", "fp32", "CPU", 2_048, True)
    npu = ModelInfo("Qwen", "ascend-310p", "fp16", "NPU 0", 2_048, False)
    assert model_facts(demo) == ["cpu", "fp32"]
    kept = replace(demo, precision="int4", kept="keeps 96 % of first choices")
    assert model_facts(kept) == ["cpu", "int4", "keeps 96 % of first choices"]
    assert model_facts(npu) == ["ascend-310p", "fp16", "NPU 0"]


@pytest.mark.parametrize("width", [56, 60, 76, 96])
def test_the_keys_that_always_matter_never_give_way(width: int) -> None:
    hints = [("Enter", "send"), ("Alt+R", "retry"), ("Ctrl+E", "edit"), ("Ctrl+P", "commands")]
    line = hint_line(hints, [("F1", "help"), ("Ctrl+Q", "quit")], width).plain
    assert line.endswith("F1 help  Ctrl+Q quit")
    assert line.startswith("Enter send")
    assert cell_len(line) == width
    assert ("Ctrl+P commands" in line) == (width >= 76)


def test_pasted_file_paths_are_understood_as_terminals_write_them(tmp_path: Path) -> None:
    plain = picture_file(tmp_path, "plain.png")
    spaced = picture_file(tmp_path, "my house.jpg")
    assert file_paths(str(plain)) == (plain,)
    assert file_paths(f"'{spaced}'") == (spaced,)
    assert file_paths(str(spaced)) == (spaced,)
    assert file_paths(str(spaced).replace(" ", "\\ ") + " ") == (spaced,)
    assert file_paths(f"file://{str(spaced).replace(' ', '%20')}") == (spaced,)
    assert file_paths(f"{plain}\n{spaced}") == (plain, spaced)
    assert file_paths(f'{plain} "{spaced}"') == (plain, spaced)


def test_a_paste_that_is_not_only_files_stays_text(tmp_path: Path) -> None:
    plain = picture_file(tmp_path, "plain.png")
    for text in ("", "hello", f"look at {plain}", str(tmp_path / "no.png"), "it's", "\0.png",
                 str(tmp_path), "a" * 9_999):  # fmt: skip
        assert file_paths(text) == ()


def test_pictures_are_told_by_what_they_hold_and_not_by_their_names(tmp_path: Path) -> None:
    picture = picture_file(tmp_path, "picture.png")
    for name in ("IMG_0001.HEIC", "scan.jfif", "no suffix"):
        path = tmp_path / name
        path.write_bytes(picture.read_bytes())
        assert file_paths(str(path)) == (path,)
    (tmp_path / "notes.png").write_text("no picture")
    assert not is_picture(tmp_path / "notes.png")


def test_pictures_typed_in_a_message_are_taken_out_of_it(tmp_path: Path) -> None:
    one, two = picture_file(tmp_path, "one.png"), picture_file(tmp_path, "my two.png")
    spaced = str(two).replace(" ", "\\ ")
    for text, rest, paths in (
        (f"{one} What is this?", "What is this?", (one,)),
        (f"What is on {one}?", "What is on?", (one,)),
        (f"Compare {one}, and '{two}'\nin a word", "Compare, and\nin a word", (one, two)),
        (f"{spaced} what", "what", (two,)),
        (f"file://{one} what", "what", (one,)),
        (f"@{one} what, @{spaced}?", "what,?", (one, two)),
        (f"no  picture\n in {tmp_path} ", f"no  picture\n in {tmp_path} ", ()),
        ("one.png and/or two", "one.png and/or two", ()),
    ):
        assert typed_files(text) == (rest, paths)


def test_the_path_of_a_picture_is_seen_where_it_ends(tmp_path: Path) -> None:
    path = picture_file(tmp_path, "my one.png")
    escaped = str(path).replace(" ", "\\ ")
    for typed in (escaped, f"@{escaped}", f"'{path}'"):
        assert file_before(f"look at {typed}") == (len(typed), path, "")
        assert file_before(f"look at {typed},") == (len(typed) + 1, path, ",")
        assert file_before(f"look at {typed} ") is None
        assert file_before(f"look at {typed[:-1]}") is None


def test_an_existing_path_is_told_from_a_command(tmp_path: Path) -> None:
    assert is_existing_path(f"{tmp_path} what is this?")
    assert not is_existing_path("/new")
    assert not is_existing_path("")


def test_a_fold_gives_back_exactly_what_was_pasted() -> None:
    pasted = "[paste #2 · 3 lines]\n" * 20
    label = fold_label(1, pasted)
    assert folds(pasted)
    assert not folds("short")
    assert unfold(f"a {label} b", {1: pasted}) == f"a {pasted} b"
    for never_pasted in ("[paste #9 · 1 lines]", f"[paste #{'9' * 5_000} · 1 lines]"):
        assert unfold(never_pasted, {1: pasted}) == never_pasted


def test_history_returns_to_the_draft() -> None:
    history = History(["one", "two"])
    assert history.earlier("draft") == "two"
    assert history.earlier("two") == "one"
    assert history.earlier("one") is None
    assert history.later() == "two"
    assert history.later() == "draft"
    assert history.later() is None
    history.add("two")
    history.add("two")
    assert history.earlier("") == "two"
    assert history.earlier("two") == "one"


def test_osc52_is_wrapped_for_tmux_and_screen() -> None:
    payload = base64.b64encode("héllo".encode()).decode()
    assert osc52("héllo", {}) == f"\x1b]52;c;{payload}\x07"
    assert osc52("héllo", {"TMUX": "x"}) == f"\x1bPtmux;\x1b\x1b]52;c;{payload}\x07\x1b\\"
    assert osc52("héllo", {"TERM": "screen"}) == f"\x1bP\x1b]52;c;{payload}\x07\x1b\\"


def test_tools_on_a_remote_machine_are_not_used() -> None:
    def everywhere(name: str) -> str:
        return name

    def names(environment: dict[str, str]) -> list[str]:
        return [name for name, _ in tool_commands(environment, everywhere)]

    assert names({"DISPLAY": ":0"}) == ["xclip", "xsel", "pbcopy", "clip.exe"]
    assert names({"DISPLAY": ":0", "SSH_TTY": "x"}) == []
    assert names({"SSH_CONNECTION": "x", "TMUX": "y"}) == ["tmux"]


def test_a_copy_says_how_sure_it_is() -> None:
    def took(environment: dict[str, str], answer: bool, text: str = "x") -> tuple[bool, bool, str]:
        copied = copy(text, "it", environment, lambda *_: answer, lambda name: name)
        return copied.certain, bool(copied.sequence), copied.message

    assert took({"DISPLAY": ":0"}, True)[:2] == (True, False)
    assert took({"SSH_TTY": "x"}, True)[:2] == (False, True)
    assert took({"DISPLAY": ":0"}, False)[:2] == (False, True)
    certain, sequence, message = took({"TMUX": "x", "SSH_TTY": "x"}, True)
    assert (certain, sequence, "tmux buffer" in message) == (True, True, True)
    certain, sequence, message = took({"SSH_TTY": "x"}, False, "y" * (OSC52_LIMIT + 1))
    assert (certain, sequence, "/export" in message) == (False, False, True)


def test_command_ids_keys_and_slash_names_are_unique() -> None:
    keys = [command.keys for command in COMMANDS if command.keys]
    assert len(set(keys)) == len(keys)
    assert len(BY_ID) == len(COMMANDS)
    assert len(BY_SLASH) == len([command for command in COMMANDS if command.slash])


def test_only_a_single_known_line_is_a_command() -> None:
    parsed = parse_slash("/think 512")
    assert parsed is not None
    assert (parsed[0].id, parsed[1]) == ("thinking", "512")
    for text in ("think", "/nothing", "/new\nmore", ""):
        assert parse_slash(text) is None


def test_keys_are_written_for_people() -> None:
    assert [key_label(key) for key in ("ctrl+r", "escape", "f1,f9", "alt+left")] == [
        "Ctrl+R", "Esc", "F1", "Alt+Left",
    ]  # fmt: skip


def test_paths_complete_only_after_an_at_sign_that_starts_a_word() -> None:
    assert path_word("see @pic/a") == "pic/a"
    assert path_word("@") == ""
    for text in ("mail@example", "no", "@done "):
        assert path_word(text) is None


def test_a_listing_shows_folders_first_and_only_pictures(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "text.txt").write_text("x")
    picture_file(tmp_path, "Sun.png")
    picture_file(tmp_path, ".hidden.png")
    assert [choice.label for choice in listing("s", tmp_path)] == ["sub/", "Sun.png"]
    assert [choice.label for choice in listing(".h", tmp_path)] == [".hidden.png"]
    assert listing("missing/x", tmp_path) == ()


def test_slash_choices_follow_what_is_typed() -> None:
    assert [choice.insert for choice in slash_choices("/exp", {})] == ["/export "]
    assert slash_choices("/export x", {}) == ()
    assert slash_choices("export", {}) == ()


def test_a_running_turn_keeps_order_and_ends_with_the_error() -> None:
    def events() -> Iterator[Event]:
        yield Token(1, "a", "reasoning", 1, 1, 9)
        yield Token(2, "b", "answer", 1, 1, 8)
        raise RuntimeError("gone")

    turn = RunningTurn(events())
    turn.consume()
    batch = turn.frame()
    assert batch is not None
    assert (batch.reasoning, batch.answer, str(batch.error), batch.ended) == (
        "a",
        "b",
        "gone",
        True,
    )
    assert turn.frame() == Batch()


def test_the_meter_accounts_for_a_turn() -> None:
    now = [0.0]
    meter = Meter(clock=lambda: now[0])
    meter.idle(resting(100))
    meter.expect(Forecast(40, 0, 100, 1_908, True))
    assert (meter.capacity.kept, meter.capacity.turn) == (100, 40)
    meter.begin()
    meter.take(Batch(plan=PromptPlan(140, 100, 0, 2_048)))
    now[0] = 2.0
    meter.take(Batch(vision=VisionProgress(1, 3)))
    progress = meter.reading().progress
    assert progress is not None
    assert (progress.fraction, progress.eta_s) == (1 / 3, 4.0)
    meter.take(Batch(prefill=PrefillProgress(10, 40, 15.0)))
    progress = meter.reading().progress
    assert progress is not None
    assert (progress.fraction, progress.eta_s) == (0.25, 2.0)
    tokens = [Token(number, "x", "answer", 9.0, 10.0, 1_907 - number) for number in range(200)]
    meter.take(Batch(tokens=[*tokens, Token(None, "y", "answer", 0, 0, 1_708, made=0)]))
    reading = meter.reading()
    assert (reading.made, len(reading.steps), reading.first_step) == (200, 120, 80)
    assert (reading.p50, reading.predict, reading.tokens_per_s) == (10.0, 9.0, 100.0)
    assert (reading.first_token_s, reading.progress) == (2.0, None)
    assert (reading.capacity.kept, reading.capacity.turn) == (100, 240)
    meter.idle(resting(340))
    assert (meter.capacity.kept, meter.capacity.turn) == (340, 0)


def test_columns_of_the_graph_do_not_move_when_steps_come() -> None:
    steps = tuple(float(number) for number in range(120))
    assert columns(steps, 0, 30) == [float(4 * number + 3) for number in range(30)]
    later = columns((*steps[1:], 120.0), 1, 30)
    assert later[:-1] == columns(steps, 0, 30)[1:]
    assert columns((), 0, 30) == []
    assert glyphs([10.0, 5.0, 0.1], 10.0, 2) == ["██", "█ ", "▁ "]


def test_frames_become_rarer_when_they_cost_more_than_their_share() -> None:
    now, spent = [10.0], [0.0]
    pacer = Pacer(0.06, lambda: now[0], lambda: spent[0])
    assert pacer.due()
    assert not pacer.due()
    now[0] += SHORTEST_S
    spent[0] += 0.012
    assert pacer.due()
    now[0] += SHORTEST_S
    assert not pacer.due()
    now[0] += SHORTEST_S
    assert pacer.due()
    now[0] += SHORTEST_S
    spent[0] += 5.0
    assert pacer.due()
    now[0] += LONGEST_S
    assert pacer.due()


@pytest.mark.parametrize("field", [*SAMPLING_FIELDS, *LIMIT_FIELDS], ids=lambda field: field.id)
def test_every_setting_reads_back_what_it_shows_and_refuses_nonsense(field: object) -> None:
    settings = ChatSettings()
    assert field.apply(settings, field.show(settings)) == settings  # type: ignore[attr-defined]
    for wrong in ("x", "-99", "1e9999"):
        with pytest.raises(ValueError, match="must be"):
            field.apply(settings, wrong)  # type: ignore[attr-defined]


def test_drafts_forget_what_is_empty_and_keep_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "drafts.json"
    drafts = Drafts(path)
    for number in range(Drafts.LIMIT + 5):
        drafts.put(f"c{number}", f"text {number}")
    assert drafts.get("c0") == ""
    drafts.put("c9", "")
    assert drafts.unsaved
    drafts.save()
    drafts.put("c9", " ")
    assert not drafts.unsaved
    again = Drafts(path)
    assert (again.get("c9"), again.get("c50")) == ("", "text 50")
    path.write_text("{broken")
    assert Drafts(path).get("c50") == ""


def test_half_blocks_keep_colours_and_proportions() -> None:
    cells = half_blocks(picture_bytes((64, 32)), 16, 9)
    assert (len(cells), len(cells[0])) == (4, 16)
    assert cells[0][0] == ((255, 0, 0), (255, 0, 0))
    assert cells[0][-1] == ((0, 0, 255), (0, 0, 255))
    assert half_blocks(b"no picture", 16, 9) == ()


def test_a_conversation_is_copied_as_markdown() -> None:
    turns = [Turn("system", "s"), Turn("user", "q"), Turn("assistant", "a")]
    assert conversation_markdown("T", turns) == "# T\n\n## You\n\nq\n\n## Answer\n\na\n"


def test_a_conversation_from_a_summary_is_copied_with_it() -> None:
    turns = [Turn("user", "q"), Turn("assistant", "a")]
    copied = conversation_markdown("T", turns, "One.\n\nTwo.\n")
    assert copied.startswith(
        "# T\n\n> *What was said before, in short*\n>\n> One.\n>\n> Two.\n\n## You\n"
    )
