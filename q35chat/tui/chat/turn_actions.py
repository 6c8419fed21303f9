"""Actions on turns: send, stop, answer again, go on, edit, choose a version, leave out, sum up.

Runs the turn that follows: a worker makes its events, a timer that lives only as long draws them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from textual.timer import Timer

from q35chat.chat.conversation import Conversation
from q35chat.chat.events import Event
from q35chat.errors import Q35Error, UsageError
from q35chat.settings.templates import Template, typed_template
from q35chat.tui import garbage
from q35chat.tui.chat.draft import Draft
from q35chat.tui.chat.host import Host
from q35chat.tui.chat.loading import Loader
from q35chat.tui.chat.paste import file_paths, typed_files
from q35chat.tui.chat.recovery import Recovery, oldest_words
from q35chat.tui.chat.running_turn import SHORTEST_S, RunningTurn
from q35chat.tui.chat.session import Session
from q35chat.tui.chat.view import missing
from q35chat.tui.commands import parse_slash
from q35chat.tui.text import cause, one_line, slots
from q35chat.tui.widgets.messages import Messages
from q35chat.tui.widgets.panel import Panel
from q35chat.tui.widgets.transcript import Transcript
from q35chat.tui.workers import attempt
from q35chat.user_input import typed_number

if TYPE_CHECKING:
    from q35chat.tui.widgets.turns import AnswerView


@dataclass(eq=False)
class TurnActions:
    """`do_<id>` for the commands of turns; each takes the argument of a slash command.

    `every` sets a timer, `spawn` runs a coroutine beside the screen's messages; `on_end` is called
    first when a turn has ended.
    """

    session: Session
    draft: Draft
    transcript: Transcript
    panel: Panel
    messages: Messages
    loader: Loader
    recovery: Recovery
    host: Host
    every: Callable[[float, Callable[[], None]], Timer]
    spawn: Callable[[Coroutine[None, None, None]], object]
    on_end: Callable[[RunningTurn], None]
    _timer: Timer | None = field(default=None, init=False)

    # -- a turn from its beginning to its end

    async def _run(
        self,
        make_events: Callable[[], Iterator[Event]],
        make_view: Callable[[], Awaitable[AnswerView]],
    ) -> None:
        """Run a turn into an answer on screen. From its beginning, before anything waits, it can
        be stopped."""
        self.panel.dismiss()
        self.messages.go_on()
        turn = self.session.begin(make_events())
        self.host.refresh()
        view = await make_view()
        self.session.meter.begin()
        garbage.spare_old()
        self.host.background("generate", turn.consume)
        self._timer = self.every(SHORTEST_S, partial(self._frame, turn, view))
        self.host.refresh()

    def _frame(self, turn: RunningTurn, view: AnswerView) -> None:
        batch = self.session.frame()
        if batch is None:
            return
        if view.is_attached:
            if batch.reasoning:
                tokens = sum(token.kind == "reasoning" for token in batch.tokens)
                view.reasoning.write(batch.reasoning, tokens, turn.thinking_s)
            if batch.answer:
                view.reasoning.finish()
                view.answer.write(batch.answer)
        self.host.show()
        if batch.ended:
            if self._timer is not None:
                self._timer.stop()
                self._timer = None
            garbage.walk_all()
            self.spawn(self._end(turn, view))

    async def _end(self, turn: RunningTurn, view: AnswerView) -> None:
        session, conversation = self.session, self.session.conversation
        if view.is_attached:
            view.finish(turn.finished)
        session.end()
        if conversation is None:
            return
        self.on_end(turn)
        following, session.follow_up = session.follow_up, None
        if following is not None and turn.finished and turn.finished.reason != "cancelled":
            await self.loader.show(following)
            self.host.say("This chat starts from the summary")
            return
        await self.transcript.synchronise(conversation.steps)
        session.meter.idle(conversation)
        if turn.error is not None:
            question = self.draft.give_back(conversation)
            await self.recovery.turn_failed(turn.error, question, summarising=following is not None)
        elif turn.finished is not None and turn.finished.reason == "capacity":
            await self.recovery.capacity_reached()
        if self.panel.display:
            self.draft.unqueue()
        session.warn(panel=self.panel.display)
        self.host.refresh()
        self.draft.forecast_soon()
        await self.send_queued()

    # -- sending

    async def submit(self, text: str) -> None:
        """Enter: keep a changed answer, run a command, attach pictures that are named, or send."""
        text, editor = text.rstrip(), self.draft.composer.editor
        if self.draft.rewrites:
            self._rewrite()
        elif self.draft.is_command(text):
            if (parsed := parse_slash(text)) is not None:
                editor.put("")
                await self.host.run(parsed[0].id, parsed[1])
            elif (found := typed_template(text)) is not None:
                await self._send_filled(*found)
            else:
                self.host.remark(f"{text.split(maxsplit=1)[0]} is no command · F1 lists them")
        elif paths := file_paths(text):
            editor.put("")
            self.draft.attach(paths)
        elif self.draft.is_typed and (named := typed_files(text))[1]:
            editor.put(named[0])
            self.draft.attach(named[1])
            self.host.remark("attached what the message names · Enter sends, × takes it away")
        else:
            await self.send()

    async def _send_filled(self, template: Template, text: str) -> None:
        """Send what a template makes of a text."""
        try:
            filled = template.filled(text)
        except UsageError as error:
            self.host.say(str(error), "error", about="the template")
            return
        self.draft.composer.editor.put(filled)
        await self.send()

    async def send(self) -> None:
        """Send the draft, if there is any, once everything it needs is there."""
        session, conversation = self.session, self.session.available
        if self.draft.composer.empty:
            self.draft.unqueue()
        elif conversation is None or session.running or self.draft.composer.chips.reading:
            self.draft.queue()
            self.host.remark(f"sends when {missing(session)} · Esc keeps it as a draft")
        elif self.draft.refusal is not None:
            session.queued = False
            await self.recovery.too_large(self.draft.refusal)
        else:
            question, edited = self.draft.take(conversation)
            if edited is None:
                events = partial(conversation.send, question.text, question.attachments)
            else:
                events = partial(conversation.edit, edited, question.text, question.attachments)
            await self._run(events, partial(self.transcript.begin, question, edited))

    async def send_queued(self) -> None:
        """Something that was missing is there. What is a command by now is no message."""
        if self.session.queued and self.draft.is_command(self.draft.composer.editor.full_text):
            self.draft.unqueue()
        elif self.session.queued:
            await self.send()

    # -- commands

    async def do_stop(self, _: str) -> None:
        """Take back a message that waits for the answer; else stop the turn; else take back the
        most recent thing that waits."""
        if self.session.running and self.session.queued:
            self.draft.unqueue()
        elif self.session.running:
            self.stop()
        elif self.panel.display:
            self.panel.dismiss()
            self.host.refresh()
        elif self.session.queued:
            self.draft.unqueue()
        elif not self.draft.cancel_edit():
            self.draft.composer.editor.focus()

    def stop(self) -> None:
        """Ask the running turn to stop."""
        self.session.stop()
        self.host.refresh()

    async def do_regenerate(self, _: str) -> None:
        """Answer the last question again."""
        conversation = self.session.current
        if not conversation.steps:
            self.host.say("There is no answer to regenerate yet")
            return
        last = conversation.steps[-1]
        former = last.id if last.turn.role == "assistant" else None
        view = partial(self.transcript.begin, None, former)
        await self._run(conversation.regenerate, view)

    async def do_proceed(self, _: str) -> None:
        """Go on with the last answer."""
        conversation = self.session.current
        last = conversation.steps[-1] if conversation.steps else None
        made = last is not None and last.turn.role == "assistant"
        if last is None or not made or (last.turn.finish == "stop" and last.turn.token_ids):
            self.host.say("The last answer is complete; there is nothing to continue")
            return
        await self._run(conversation.continue_answer, self.transcript.reopen_last)

    async def do_edit(self, _: str) -> None:
        """Change an earlier question."""
        self.panel.dismiss()
        self.draft.unqueue()
        self.draft.edit_earlier()

    async def do_edit_answer(self, _: str) -> None:
        """Change an earlier answer."""
        self.panel.dismiss()
        self.draft.unqueue()
        self.draft.edit_earlier("assistant")

    def _rewrite(self) -> None:
        """Keep a changed answer as a version, which the next turns go on from."""
        conversation, taken = self.session.current, self.draft.take_answer()
        if taken is None:
            return

        async def kept(failed: Exception | None) -> None:
            if failed is not None:
                self.host.say(cause(failed), "error")
                return
            await self.transcript.turn_to(conversation.steps)
            self._changed(conversation)
            self.host.say("The answer is changed, and the next turns go on from it")

        def work() -> None:
            for _ in conversation.edit(*taken):
                pass

        self.host.background("edit", partial(attempt, work), kept)

    async def do_branch_back(self, _: str) -> None:
        """Show the version of the chat before this one."""
        await self._branch(-1)

    async def do_branch_forward(self, _: str) -> None:
        """Show the version of the chat after this one."""
        await self._branch(1)

    async def _branch(self, by: int) -> None:
        conversation = self.session.current
        last = conversation.steps[-1] if conversation.steps else None
        if last is None or last.branches == 1:
            self.host.say("There is only one version; a retry or an edit makes another")
            return
        try:
            conversation.choose_branch((last.branch + by) % last.branches)
        except Q35Error as error:
            self.host.say(str(error), "error")
            return
        await self.transcript.turn_to(conversation.steps)
        self._changed(conversation)

    async def do_drop_oldest(self, argument: str) -> None:
        """Leave out the oldest question and answer, or so many of them."""
        conversation = self.session.current
        most = len(self.session.questions) - 1
        pairs = typed_number(argument, most) if argument else 1
        if most < 1:
            self.host.say("There is only one turn; leaving it out would leave nothing")
        elif not pairs:
            said = one_line(argument, 40)
            self.host.say(f"“{said}” is not a number from 1 to {most}", "error")
        else:
            which = oldest_words(self.session.questions, pairs)
            before = conversation.used_slots
            try:
                conversation.drop_oldest(pairs)
            except Q35Error as error:
                self.host.say(str(error), "error")
                return
            await self.transcript.synchronise(conversation.steps)
            self._changed(conversation)
            freed = max(0, before - conversation.used_slots)
            won = f"; {slots(freed)} are free again" if freed else ""
            self.host.say(f"Left out {which}{won}")

    def _changed(self, conversation: Conversation) -> None:
        """The turns that the model reads are others now."""
        self.session.meter.idle(conversation)
        self.draft.forecast = None
        self.draft.forecast_soon()
        self.host.refresh()

    async def do_summarise(self, _: str) -> None:
        """Let the model write a summary, then go on in a new conversation that starts from it."""
        conversation = self.session.current
        if not conversation.steps:
            self.host.say("There is nothing to sum up yet")
            return
        fresh, events = self.session.workspace.new_from_summary(conversation)
        self.session.follow_up = fresh
        await self._run(lambda: events, partial(self.transcript.begin, None))
