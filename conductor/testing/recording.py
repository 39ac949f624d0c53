"""Recorded conversations of a client and an agent: `Recording` reads them, `Recorder` writes them.

A recording is a trace file (`--trace FILE`), or what `Recorder` writes: JSON lines, one message per
line, in the order in which they passed between client and agent; the events of the Rust
conductor's trace files:

    {"type": "request", "ts": 0.1, "protocol": "acp", "from": "Client", "to": "Agent", "id": 1,
     "method": "session/prompt", "params": {…}}
    {"type": "notification", "ts": 0.2, "protocol": "acp", "from": "Agent", "to": "Client",
     "method": "session/update", "params": {…}}
    {"type": "response", "ts": 0.3, "from": "Agent", "to": "Client", "id": 1, "is_error": false,
     "payload": {…}}

`ts` is in seconds since the start. Ids are unique in a recording. The package has some of real
agents, in the directory `recordings`.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, TextIO

import attrs
import trio

from conductor.files import open_own
from conductor.proxy import Proxy, RawMessage, on
from conductor.testing.replay_values import ReplayValues
from conductor.tracing.conversation import (
    ConversationError,
    End,
    RecordedMessage,
    conversation,
)
from conductor.tracing.reader import Trace

__all__ = ["PROJECT", "RecordedMessage", "Recorder", "Recording"]

PROJECT: Final = "/project"
"""The working directory of the sessions in recordings."""
_DIRECTORY: Final = Path(__file__).parent / "recordings"
_SENDERS: Final = {"client": "Client", "agent": "Agent"}


@attrs.frozen
class Recording:
    """A recorded conversation."""

    name: str
    messages: Sequence[RecordedMessage]

    @classmethod
    def load(
        cls,
        name: str | os.PathLike[str],
        *,
        cwd: str = PROJECT,
        end: End = "agent",
        chain: str | None = None,
    ) -> Recording:
        """Read a recording: the name of one of the package, or a path of a trace file.

        `end` is the end of the chain to take the messages of, `chain` the one in the trace of a
        server. `cwd` replaces the directory `/project` in all messages. Raises `ValueError`, with
        the line, for a file that is not a recording.
        """
        path = Path(name)
        if path.suffix != ".jsonl" and not path.is_file():
            path = _DIRECTORY / f"{name}.jsonl"
            if not path.exists():
                known = ", ".join(cls.names())
                raise ValueError(f"no recording is called {str(name)!r}; there are: {known}")
        try:
            messages = conversation(Trace.load(path).records, end, chain)
        except ConversationError as exc:
            raise ValueError(f"{path}: {exc}") from exc
        return cls(path.stem, messages)._with_directory(PROJECT, cwd)

    @property
    def cwd(self) -> str | None:
        """The working directory of the first session."""
        for each in self.messages:
            if each.kind == "request" and isinstance(each.payload, dict) and "cwd" in each.payload:
                return str(each.payload["cwd"])
        return None

    def moved(self, cwd: str | None) -> Recording:
        """The recording with another working directory."""
        return self if cwd is None or self.cwd is None else self._with_directory(self.cwd, cwd)

    def received_by(self, client: Recording) -> Recording:
        """The agent's end of a chain without its last updates, if the client left before it got
        them. `client` is the other end."""
        sent, got = (
            len(list(takewhile(_is_update, reversed(each.messages)))) for each in (self, client)
        )
        return Recording(self.name, self.messages[: len(self.messages) - max(sent - got, 0)])

    def _with_directory(self, old: str, new: str) -> Recording:
        if old == new:
            return self
        values = ReplayValues()
        values.set_directory(old, new)
        messages = [attrs.evolve(each, payload=values.live(each.payload)) for each in self.messages]
        return Recording(self.name, messages)

    @staticmethod
    def names() -> list[str]:
        """The names of the recordings in the package."""
        return sorted(path.stem for path in _DIRECTORY.glob("*.jsonl"))

    @property
    def labels(self) -> list[str]:
        """The labels of all messages, in order."""
        return [message.label for message in self.messages]

    @property
    def prompts(self) -> list[str]:
        """The texts of the prompts, in order."""
        return [
            "".join(block.get("text", "") for block in message.payload["prompt"])
            for message in self.messages
            if message.kind == "request" and message.method == "session/prompt"
        ]


@attrs.define
class Recorder(Proxy):
    """A proxy that records what passes through it, at its place in the chain.

        async with acp_chain(Recorder("mine.jsonl"), ComponentSpec(run=("my-agent",))) as client:

    `replace` maps texts that must not be recorded, such as the path of a home directory, to others.
    """

    file: Path = attrs.field(converter=Path)
    replace: dict[str, str] = attrs.field(factory=dict)
    _start: float = attrs.field(factory=trio.current_time, init=False)
    _open: TextIO = attrs.field(init=False)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        with _create(self.file) as self._open:
            yield

    @on("*")
    async def record(self, message: RawMessage) -> None:
        text = (message.payload or b"null").decode()
        for found, shown in self.replace.items():
            text = text.replace(json.dumps(found)[1:-1], json.dumps(shown)[1:-1])
        event: dict[str, Any] = {
            "type": message.kind,
            "ts": round(trio.current_time() - self._start, 3),
        }
        if message.kind != "response":
            event["protocol"] = "acp"
        event["from"] = _SENDERS[message.source]
        event["to"] = "Agent" if message.source == "client" else "Client"
        if message.kind != "notification":
            event["id"] = message.number
        if message.kind == "response":
            event |= {"is_error": message.is_error, "payload": json.loads(text)}
        else:
            event |= {"method": message.method, "params": json.loads(text)}
        self._open.write(json.dumps(event, ensure_ascii=False) + "\n")


def _is_update(message: RecordedMessage) -> bool:
    return message.kind == "notification" and message.sender == "agent"


def _create(path: Path) -> TextIO:
    return os.fdopen(
        open_own(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666),
        "w",
        encoding="utf-8",
        buffering=1,
    )
