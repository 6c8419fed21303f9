"""What sending the draft would take, asked when the keys rest and off the screen's thread."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from textual.timer import Timer

from q35chat.chat.service import Conversation, Forecast
from q35chat.chat.values import Attachment
from q35chat.errors import Q35Error

if TYPE_CHECKING:
    from q35chat.tui.screens.chat import ChatScreen

DELAY_S: Final = 0.12


class Forecasting:
    """Holds the newest forecast and the draft it belongs to."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self._timer: Timer | None = None
        self._key = ""
        self.forecast: Forecast | None = None

    def soon(self) -> None:
        """The draft changed: ask again once the keys rest."""
        if self._timer is not None:
            self._timer.stop()
        self._timer = self._screen.set_timer(DELAY_S, self._ask)

    def refusal(self) -> Forecast | None:
        """The forecast, if it belongs to the present draft and says that this does not fit."""
        forecast = self.forecast
        current = self._key == self._draft_key()
        return forecast if forecast is not None and current and not forecast.fits else None

    def forget(self) -> None:
        """What was forecast is not so any more."""
        self.forecast = None

    def _draft_key(self) -> str:
        text, attachments = self.draft()
        names = [attachment.sha256 for attachment in attachments]
        return "\0".join([self._screen.drafting.editing or "", text, *names])

    def draft(self) -> tuple[str, tuple[Attachment, ...]]:
        """What would be sent now."""
        composer = self._screen.composer
        return composer.editor.full_text.strip(), composer.chips.attachments

    def _ask(self) -> None:
        screen, self._timer = self._screen, None
        screen.drafting.save()
        conversation = screen.ready
        if conversation is None or screen.generation.running:
            return
        text, attachments = self.draft()
        if screen.is_command(text) or not (text or attachments):
            self.forecast = None
            screen.meter.idle(conversation)
            screen.status.refresh()
            return
        screen.run_worker(
            partial(
                self._compute,
                self._draft_key(),
                conversation,
                text,
                attachments,
                screen.drafting.editing,
            ),
            thread=True,
            exclusive=True,
            group="forecast",
        )

    def _compute(
        self,
        key: str,
        conversation: Conversation,
        text: str,
        attachments: tuple[Attachment, ...],
        edited: str | None,
    ) -> None:
        try:
            forecast = conversation.forecast(text, attachments, edited)
        except Q35Error as error:
            self._screen.call_later(self._screen.status.say, str(error))
        else:
            self._screen.call_later(self._show, conversation, key, forecast)

    def _show(self, conversation: Conversation, key: str, forecast: Forecast) -> None:
        screen = self._screen
        current = conversation is screen.ready and key == self._draft_key()
        if current and not screen.generation.running:
            self._key, self.forecast = key, forecast
            screen.meter.expect(forecast)
            screen.status.refresh()
