"""Recorded conversations of a client and an agent.

A recording is a trace file (`--trace FILE`), of this conductor or of the Rust conductor. The
package has some of real agents, in the directory `recordings`: their messages at one hop, with
`ts` in seconds since the start.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Final

import attrs
import msgspec

from conductor.testing.replay_values import ReplayValues
from conductor.tracing.conversation import ConversationError, End, conversation, message_label
from conductor.tracing.links import Message
from conductor.tracing.reader import Trace
from conductor.tracing.records import NotificationRecord, RequestRecord, ResponseRecord

__all__ = ["PROJECT", "Recording"]

PROJECT: Final = "/project"
"""The working directory of the sessions in recordings."""
_DIRECTORY: Final = Path(__file__).parent / "recordings"


@attrs.frozen
class Recording:
    """A recorded conversation."""

    name: str
    messages: Sequence[Message]

    @classmethod
    def load(
        cls,
        name: str | os.PathLike[str],
        *,
        end: End = "agent",
        chain: str | None = None,
    ) -> Recording:
        """Read a recording: the name of one of the package, or a path of a trace file.

        `end` is the end of the chain to take the messages of, `chain` the one in the trace of a
        server. Raises `ValueError`, with the line, for a file that is not a recording.
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
        return cls(path.stem, messages)

    @property
    def cwd(self) -> str | None:
        """The working directory of the first session."""
        for each in self.messages:
            match each:
                case RequestRecord(params={"cwd": cwd}):
                    return str(cwd)
        return None

    def moved(self, cwd: str | None) -> Recording:
        """The recording with another working directory."""
        if cwd is None or self.cwd is None:
            return self
        values = ReplayValues()
        values.set_directory(self.cwd, cwd)
        messages = []
        for each in self.messages:
            name = "payload" if isinstance(each, ResponseRecord) else "params"
            messages.append(msgspec.structs.replace(each, **{name: values.live(each.content)}))
        return Recording(self.name, messages)

    def received_by(self, client: Recording) -> Recording:
        """The agent's end of a chain without its last updates, if the client left before it got
        them. `client` is the other end."""
        sent, got = (
            len(list(takewhile(_is_update, reversed(each.messages)))) for each in (self, client)
        )
        return Recording(self.name, self.messages[: len(self.messages) - max(sent - got, 0)])

    @staticmethod
    def names() -> list[str]:
        """The names of the recordings in the package."""
        return sorted(path.stem for path in _DIRECTORY.glob("*.jsonl"))

    @property
    def labels(self) -> list[str]:
        """The labels of all messages, in order."""
        return [*map(message_label, self.messages)]

    @property
    def prompts(self) -> list[str]:
        """The texts of the prompts, in order."""
        return [
            "".join(block.get("text", "") for block in message.params["prompt"])
            for message in self.messages
            if isinstance(message, RequestRecord) and message.method == "session/prompt"
        ]


def _is_update(message: Message) -> bool:
    return isinstance(message, NotificationRecord) and message.toward == "client"
