"""An open session of `journal`: both ids, what is not written yet, what the agent gets."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import attrs

from conductor.proxy import get_logger
from conductor.proxy.text_streams import chunk_text
from conductor.setting_forms import state_after
from proxies.journal.files import JournalFiles, KeptSession
from proxies.shared.transcript import BoundedTranscript

__all__ = [
    "OPENING",
    "JournalSession",
    "has_transcript",
    "notice",
    "replayed",
    "transcript_of",
]

log = get_logger(component="journal")

OPENING: Final = "You have not seen this conversation. This is its transcript so far:"
_TEXT_BYTES: Final = 4096
"""Characters of a streamed text that are written together."""
_KEPT: Final = frozenset(
    {
        *("agent_message_chunk", "agent_thought_chunk", "user_message_chunk"),
        *("tool_call", "tool_call_update", "plan"),
    }
)


@attrs.define(eq=False)
class JournalSession:
    """A session as the client knows it, and the agent's session for it."""

    id: str
    agent_id: str
    files: JournalFiles
    opened: dict[str, Any]
    """The members of the answer that opened it, with the settings as they are now."""
    title: str | None = None
    transcript: str = ""
    """Text for the agent, sent before the next prompt."""
    running: int = 0
    """Prompts that are not answered."""
    is_replayed: bool = False
    """Whether the agent repeats what is in the file."""
    may_be_lost: bool = False
    """Whether a component has failed in one of its prompts: a restarted agent knows it no more."""
    is_lost: bool = False
    """Whether a restarted agent has given its id to another session."""
    _streamed: dict[str, Any] | None = attrs.field(default=None, init=False)
    """A piece of text that is not written yet, with those that came after it."""
    _has_failed: bool = attrs.field(default=False, init=False)

    def add_prompt(self, blocks: list[Any]) -> bool:
        """Record a prompt; returns whether it gives the session its title."""
        self.write({"prompt": [_described(block) for block in blocks]})
        if self.title:
            return False
        texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
        self.title = textwrap.shorten(" ".join(texts)[:500], 80, placeholder=" …") or "(no text)"
        self.write({"title": self.title})
        return True

    def add_update(self, update: dict[str, Any]) -> None:
        """Record an update of the agent, if it belongs to the conversation."""
        kind = update.get("sessionUpdate")
        if kind == "current_mode_update":
            self.opened = state_after(self.opened, "mode", update.get("currentModeId"), {})
        elif kind == "config_option_update":
            self.opened = state_after(self.opened, "option", None, update)
        elif kind == "session_info_update" and isinstance(update.get("title"), str):
            self.title = update["title"]
            self.write({"title": self.title})
        elif kind in _KEPT and not self.is_replayed:
            self._add(update)

    def write(self, record: dict[str, Any]) -> None:
        """Append a record, after the text that waits."""
        self.flush()
        self._append(record)

    def copy(self, kept: KeptSession) -> None:
        """Begin as a kept session, which this one is a fork of."""
        with self._noted_failure():
            cut: list[dict[str, Any]] = [{"cut": True}] if kept.is_cut else []
            self.files.copy([*cut, *kept.records], self.id)
        if kept.title:
            self.write({"title": kept.title})

    def flush(self) -> None:
        """Write the text that waits."""
        if (streamed := self._streamed) is not None:
            self._streamed = None
            self._append({"update": streamed})

    def _add(self, update: dict[str, Any]) -> None:
        text, last = _plain_text(update), self._streamed
        if text is None:
            self.write({"update": update})
        elif last is not None and _is_continued(last, update):
            last["content"]["text"] += text
            if len(last["content"]["text"]) > _TEXT_BYTES:
                self.flush()
        else:
            self.flush()
            self._streamed = {**update, "content": dict(update["content"])}

    def _append(self, record: dict[str, Any]) -> None:
        with self._noted_failure():
            self.files.append(self.id, record)

    @contextmanager
    def _noted_failure(self) -> Iterator[None]:
        """Log the first change of the file that fails."""
        try:
            yield
        except OSError as exc:
            if not self._has_failed:
                log.warning("the journal cannot be written", session=self.id, error=str(exc))
            self._has_failed = True


def replayed(kept: KeptSession) -> Iterator[dict[str, Any]]:
    """The updates that show a kept session again."""
    for record in kept.records:
        for block in record.get("prompt") or ():
            yield {"sessionUpdate": "user_message_chunk", "content": block}
        if isinstance(record.get("update"), dict):
            yield record["update"]


def transcript_of(kept: KeptSession, limit: int) -> str:
    """The end of a kept session as a text for an agent that has not seen it."""
    transcript = BoundedTranscript(limit, is_cut=kept.is_cut)
    for update in replayed(kept):
        kind = update.get("sessionUpdate")
        text = chunk_text(update) or ""
        if kind == "user_message_chunk":
            transcript.add("user", text)
        elif kind == "agent_message_chunk":
            transcript.add("agent", text)
        elif kind == "tool_call":
            transcript.add("agent", f"\n[tool call: {update.get('title')}]\n")
    said = str(transcript)
    return f"{OPENING}\n\n<transcript>\n{said}\n</transcript>" if said else ""


def notice(title: str, more: str, *, as_text: bool) -> dict[str, Any]:
    """An update that tells the user something, if need be as a text of the agent."""
    if as_text:
        shown = f"\n\n[{title}. {more}]\n\n" if more else f"\n\n[{title}]\n\n"
        return {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": shown}}
    update = {"sessionUpdate": "notice", "severity": "info", "title": title}
    return {**update, "description": more} if more else update


def has_transcript(update: dict[str, Any]) -> bool:
    """Whether the agent repeats a transcript that it was given."""
    content = update.get("content")
    return isinstance(content, dict) and str(content.get("text")).startswith(OPENING)


def _described(block: Any) -> Any:
    """A content block of a prompt; of images, audio and binary resources only what they are."""
    if not isinstance(block, dict):
        return {"type": "text", "text": ""}
    resource = block.get("resource")
    if block.get("type") in ("image", "audio"):
        return {"type": "text", "text": f"[{block['type']}: {block.get('mimeType')}]"}
    if isinstance(resource, dict) and "blob" in resource:
        return {"type": "text", "text": f"[resource: {resource.get('uri')}]"}
    return block


def _plain_text(update: dict[str, Any]) -> str | None:
    """The text of a chunk with nothing else that would be lost if chunks are joined."""
    content = update.get("content")
    if not isinstance(content, dict) or content.keys() != {"type", "text"}:
        return None
    if not str(update["sessionUpdate"]).endswith("_chunk") or "_meta" in update:
        return None
    return content["text"] if isinstance(content["text"], str) else None


def _is_continued(last: dict[str, Any], update: dict[str, Any]) -> bool:
    others = ("sessionUpdate", "messageId")
    return all(last.get(name) == update.get(name) for name in others)
