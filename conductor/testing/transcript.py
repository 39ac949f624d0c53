"""What one end of a connection heard, in the order in which it came, and questions about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import attrs
import trio

from conductor.jsonrpc.codec import Malformed
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.proxy.conversion import decode_params

__all__ = ["Heard", "Transcript"]


@attrs.frozen
class Heard:
    """One message, or a line that was none."""

    kind: Literal["request", "notification", "answer", "malformed"]
    method: str
    """Of an answer, the method that it answers; of a malformed line, what is wrong with it."""
    params: Any = None
    result: Any = None
    error: Any = None
    id: int | str | None = None
    """Of a request, as its sender gave it."""
    raw: bytes = attrs.field(default=b"", repr=False, eq=False)
    """Params, result or error, byte for byte."""

    @property
    def label(self) -> str:
        """A few words: `session/update plan`, `fs/read_text_file?`, `answer to session/prompt`."""
        match self.kind:
            case "answer":
                return f"{'error' if self.error is not None else 'answer'} to {self.method}"
            case "request":
                return f"{self.method}?"
            case "malformed":
                return f"malformed: {self.method}"
        update = self.params.get("update") if isinstance(self.params, dict) else None
        kind = update.get("sessionUpdate") if isinstance(update, dict) else None
        return f"{self.method} {kind}" if kind else self.method

    @property
    def session(self) -> str | None:
        return self.params.get("sessionId") if isinstance(self.params, dict) else None


@attrs.define(eq=False)
class Transcript(Sequence[Heard]):
    """A list of `Heard` that only grows."""

    _heard: list[Heard] = attrs.field(factory=list)
    _more: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)

    def __len__(self) -> int:
        return len(self._heard)

    def __getitem__(self, index: Any) -> Any:
        return self._heard[index]

    def __iter__(self) -> Iterator[Heard]:
        return iter(self._heard)

    def add(self, heard: Heard) -> None:
        self._heard.append(heard)
        self._more.unpark_all()

    # -- Receiver ----------------------------------------------------------------------------------

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        value, raw = _value(params)
        self.add(Heard("request", method, params=value, id=call.source_id, raw=raw))

    def on_notification(self, method: str, params: Payload | None) -> None:
        value, raw = _value(params)
        self.add(Heard("notification", method, params=value, raw=raw))

    def on_notifications(self, notifications: NotificationBatch) -> None:
        for each in notifications.params:
            self.on_notification(notifications.method, each)

    def on_response(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        value, raw = _value(result if error is None else error)
        if error is None:
            self.add(Heard("answer", call.method, result=value, raw=raw))
        else:
            self.add(Heard("answer", call.method, error=value, raw=raw))

    def on_malformed(self, frame: Malformed, call: InFlightRequest | None) -> None:
        self.add(Heard("malformed", frame.reason, raw=frame.excerpt.encode()))

    # -- questions ---------------------------------------------------------------------------------

    @property
    def labels(self) -> list[str]:
        """Everything, in a few words each: the shape of a conversation in one comparison."""
        return [each.label for each in self._heard]

    @property
    def malformed(self) -> list[Heard]:
        """Lines that were no message, answers to nothing and second answers."""
        return [each for each in self._heard if each.kind == "malformed"]

    def of(self, method: str, kind: str | None = None) -> list[Heard]:
        """The messages with this method: of a request also the answers, unless `kind` says less."""
        return [each for each in self._heard if each.method == method and kind in (None, each.kind)]

    def updates(self, session: str | None = None) -> list[dict[str, Any]]:
        """The updates of one session, or of all."""
        return [
            each.params["update"]
            for each in self.of("session/update", "notification")
            if session in (None, each.session)
        ]

    def text(self, session: str | None = None) -> str:
        """What the agent said: the text of its message chunks."""
        return "".join(
            update["content"].get("text", "")
            for update in self.updates(session)
            if update["sessionUpdate"] == "agent_message_chunk"
        )

    def check_order(self, *labels: str) -> None:
        """Assert that these labels occur in this order, whatever is between them."""
        rest = iter(self.labels)
        for number, label in enumerate(labels):
            if label not in rest:
                heard = "\n  ".join(self.labels)
                after = f" after {labels[number - 1]!r}" if number else ""
                raise AssertionError(f"{label!r} does not come{after}; heard:\n  {heard}")

    async def wait(self, label: str | Callable[[Heard], bool], *, count: int = 1) -> Heard:
        """Wait until something with this label, or for which this is true, was heard `count` times.

        What was heard before counts.
        """
        matches = (lambda each: each.label == label) if isinstance(label, str) else label
        while True:
            found = [each for each in self._heard if matches(each)]
            if len(found) >= count:
                return found[count - 1]
            await self._more.park()


def _value(payload: Payload | None) -> tuple[Any, bytes]:
    if payload is None:
        return None, b""
    raw = bytes(payload)
    try:
        return decode_params(raw, Any), raw
    except ValueError:
        return None, raw  # nested too deep to be decoded
