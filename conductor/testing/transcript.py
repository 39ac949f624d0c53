"""Record of the messages that one end of a connection received, in order, with queries."""

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
    """One received message, or a line that was not a message."""

    kind: Literal["request", "notification", "answer", "malformed"]
    method: str
    """For an answer, the method of its request; for a malformed line, the reason."""
    params: Any = None
    result: Any = None
    error: Any = None
    id: int | str | None = None
    """For a request, the id that its sender chose."""
    raw: bytes = attrs.field(default=b"", repr=False, eq=False)
    """Raw JSON of the params, result or error."""

    @property
    def label(self) -> str:
        """Short form: `session/update plan`, `fs/read_text_file?`, `answer to session/prompt`."""
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
    """An append-only sequence of `Heard`."""

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

    # -- queries -----------------------------------------------------------------------------------

    @property
    def labels(self) -> list[str]:
        """The labels of all messages, to compare a whole conversation in one assertion."""
        return [each.label for each in self._heard]

    @property
    def malformed(self) -> list[Heard]:
        """Lines that were not messages, and responses that match no open request."""
        return [each for each in self._heard if each.kind == "malformed"]

    def of(self, method: str, kind: str | None = None) -> list[Heard]:
        """Return the messages of a method, its responses included, or only those of a `kind`."""
        return [each for each in self._heard if each.method == method and kind in (None, each.kind)]

    def updates(self, session: str | None = None) -> list[dict[str, Any]]:
        """Return the session updates of one session, or of all."""
        return [
            each.params["update"]
            for each in self.of("session/update", "notification")
            if session in (None, each.session)
        ]

    def text(self, session: str | None = None) -> str:
        """Return the text of the agent's messages: chunks, and whole messages of version 2, each of
        which replaces what its `messageId` had before."""
        messages: dict[object, str] = {}
        for number, update in enumerate(self.updates(session)):
            kind, id = update["sessionUpdate"], update.get("messageId", number)
            if kind == "agent_message_chunk":
                messages[id] = messages.get(id, "") + update["content"].get("text", "")
            elif kind == "agent_message" and update.get("content") is not None:
                messages[id] = "".join(block.get("text", "") for block in update["content"])
        return "".join(messages.values())

    def check_order(self, *labels: str) -> None:
        """Assert that these labels occur in this order, possibly with others in between."""
        rest = iter(self.labels)
        for number, label in enumerate(labels):
            if label not in rest:
                heard = "\n  ".join(self.labels)
                after = f" after {labels[number - 1]!r}" if number else ""
                raise AssertionError(f"{label!r} does not come{after}; heard:\n  {heard}")

    async def wait(self, label: str | Callable[[Heard], bool], *, count: int = 1) -> Heard:
        """Wait until `count` messages match, and return the last of them.

        `label` is a label or a predicate. Messages received before the call count too.
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
        return None, raw  # nested too deeply to be decoded
