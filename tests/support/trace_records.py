"""Records of traces, written by hand: one chain `client → notes → agent`, numbered as they come."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from conductor.tracing.records import (
    HandlerRecord,
    LogRecord,
    NotificationRecord,
    Record,
    RequestRecord,
    ResponseRecord,
    StderrRecord,
    TraceComponent,
    TraceHeader,
)

START = 1_800_000_000.0  # seconds since 1970
STEP = 0.25  # seconds between two records


class TraceScript:
    """Makes the records of a chain, in order; each is one step later than the one before."""

    def __init__(self, *names: str, chain: str = "demo") -> None:
        self.names = names or ("client", "notes", "agent")
        self.chain = chain
        labels = ["Client", *(f"Proxy({i})" for i in range(len(self.names) - 2)), "Agent"]
        self.labels = dict(zip(self.names, labels, strict=True))
        self._numbers = count(1)
        self._requests: dict[int, RequestRecord] = {}
        self.ts = 0.0
        components = tuple(
            TraceComponent(name, label, "client" if label == "Client" else "process")
            for name, label in self.labels.items()
        )
        header = TraceHeader(ts=0.0, time=START, chain=chain, components=components)
        self.records: list[Record] = [header]

    def request(self, hop: str, method: str, params: Any = None, **others: Any) -> int:
        """A request of a hop, as `client>notes`; returns its number. Components that are not named
        in the header were inserted later."""
        n = next(self._numbers)
        common = self._common(hop, params, others)
        protocol = common.pop("protocol_", "acp")
        record = RequestRecord(n=n, id=n, protocol=protocol, method=method, params=params, **common)
        self._requests[n] = record
        return self._add(record)

    def notify(self, hop: str, method: str, params: Any = None, **others: Any) -> int:
        n = next(self._numbers)
        common = self._common(hop, params, others)
        return self._add(
            NotificationRecord(n=n, protocol="acp", method=method, params=params, **common)
        )

    def update(self, hop: str, text: str, **others: Any) -> int:
        """A chunk of an agent's message, in the session "s"."""
        content = {"type": "text", "text": text}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        params = {"sessionId": "s", "update": update}
        return self.notify(hop, "session/update", params, **others)

    def answer(
        self, request: int, payload: Any = None, *, is_error: bool = False, **others: Any
    ) -> int:
        """The response to a request, on its hop."""
        asked = self._requests[request]
        common = self._common(f"{asked.receiver}>{asked.sender}", payload, others)
        common["session"] = others.get("session", asked.session)
        record = ResponseRecord(
            n=next(self._numbers),
            id=asked.n,
            request=asked.n,
            method=asked.method,
            is_error=is_error,
            payload=payload,
            elapsed=self.ts - asked.ts,
            **common,
        )
        return self._add(record)

    def cancel(self, request: int) -> int:
        """The cancellation of a request, on its hop."""
        asked = self._requests[request]
        hop, params = f"{asked.sender}>{asked.receiver}", {"requestId": asked.id}
        session = asked.session
        return self.notify(hop, "$/cancel_request", params, request=request, session=session)

    def handler(self, component: str, message: int, **others: Any) -> None:
        self._add(HandlerRecord(**self._when(), component=component, message=message, **others))

    def log(self, level: str, event: str, **others: Any) -> None:
        self._add(LogRecord(**self._when(), level=level, event=event, **others))

    def stderr(self, component: str, text: str) -> None:
        self._add(StderrRecord(**self._when(), component=component, text=text))

    def write(self, path: Path) -> Path:
        path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in self.records))
        return path

    def _place(self, name: str) -> float:
        """The place in the chain; a component that the header does not name is before the agent."""
        return self.names.index(name) if name in self.names else len(self.names) - 1.5

    def _common(self, hop: str, payload: Any, others: dict[str, Any]) -> dict[str, Any]:
        sender, _, receiver = hop.partition(">")
        session = payload.get("sessionId") if isinstance(payload, dict) else None
        places = [self._place(each) for each in (sender, receiver)]
        return {
            **self._when(),
            "from_": self.labels.get(sender, sender),
            "to": self.labels.get(receiver, receiver),
            "sender": sender,
            "receiver": receiver,
            "hop": int(min(places)),
            "session": session,
            "size": 0 if payload is None else len(msgspec.json.encode(payload)),
            **others,
        }

    def _when(self) -> dict[str, Any]:
        self.ts += STEP
        return {"ts": self.ts, "time": START + self.ts, "chain": self.chain}

    def _add(self, record: Any) -> int:
        self.records.append(record)
        return getattr(record, "n", 0)
