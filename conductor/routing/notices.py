"""Notices: messages of the conductor to the user. Pure.

A client that supports notices gets a `notice` session update, which is not part of the
conversation. In version 1 it announces that with the capability `session.notices`; in version 2
every client supports them. Any other client gets the text as an `agent_message_chunk`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from conductor.jsonrpc.json_object import member_at
from conductor.jsonrpc.messages import Payload, encode_lossy, truncate

__all__ = ["Notices", "Severity", "is_failure", "paragraph"]

Severity: TypeAlias = Literal["info", "warning", "error"]
_PREFIX: Final = "[acp-conductor]"
_MAX_CHARS: Final = 4_000
"""Limit for a title and for a detail: the text of an exception may have any length."""


class Notices(msgspec.Struct, eq=False):
    """Notices in the form that one client supports."""

    as_notice: bool = False

    @classmethod
    def of(cls, initialize: Payload | None, version: int) -> Notices:
        """For a client with these raw `initialize` params; `version` is the negotiated one."""
        support = member_at(initialize or b"", "clientCapabilities", "session", "notices")
        return cls(as_notice=version == 2 or (support or b"").startswith(b"{"))

    def params(
        self, session: str, title: str, detail: str | None = None, severity: Severity = "warning"
    ) -> bytes:
        """The raw params of the `session/update`.

        `title` must be understandable alone; `detail` explains it or says what to do.
        """
        title = truncate(title, _MAX_CHARS)
        detail = truncate(detail or "", _MAX_CHARS)
        update: dict[str, Any]
        if self.as_notice:
            update = {"sessionUpdate": "notice", "severity": severity}
            update["title"] = f"{_PREFIX} {title}"
            if detail:
                update["description"] = detail
        else:
            text = "; ".join(filter(None, (title, detail)))
            content = {"type": "text", "text": paragraph(f"{_PREFIX} {text}")}
            update = {"sessionUpdate": "agent_message_chunk", "content": content}
        return encode_lossy({"sessionId": session, "update": update})


def paragraph(words: str) -> str:
    """A notice as a text of the agent: apart from what the agent says before and after it, also
    where it is shown as Markdown, in which a single line break is a space."""
    return f"\n\n{words}\n\n"


def is_failure(update: Mapping[str, Any]) -> bool:
    """Whether a decoded `update` is a notice of a conductor about something that has failed."""
    is_error = update.get("sessionUpdate") == "notice" and update.get("severity") == "error"
    return is_error and str(update.get("title")).startswith(_PREFIX)
