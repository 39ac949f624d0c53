"""Members that the messages of one hop, method and session have in common; encoded and masked
once."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final, TypeAlias, TypeVar

import attrs
import msgspec

from conductor.acp import SESSION_SETUP_METHODS
from conductor.jsonrpc.notification_batch import PARAMS_START, SESSION_UPDATE
from conductor.routing.traced_port import TracedPort
from conductor.tracing.masking import Masker
from conductor.tracing.payload_text import session_at_start
from conductor.tracing.record_times import RecordTimes
from conductor.tracing.recorder import TraceRecorder
from conductor.tracing.size_members import SessionPrefixes

__all__ = ["BEGINNING", "Common", "CommonMembers", "Hop", "PortMembers", "recorder_of"]

BEGINNING: Final = 54
"""Bytes of params that have the session id, if it comes first and is a UUID."""
Hop: TypeAlias = tuple[str, int]
"""Name of the chain, and number of the hop in it."""
_MAX: Final = 2000
"""Entries of a table before it is begun again."""
_MAX_SESSIONS: Final = 64
_UNUSUAL: Final = SESSION_SETUP_METHODS | {"authenticate", "auth/login", "mcp/message"}
LINE_END: Final = b"}\n"
"""End of the line of an update behind its params, and of its record."""
_K = TypeVar("_K")
_V = TypeVar("_V")
_encode: Final = msgspec.json.Encoder().encode


class Common(msgspec.Struct, eq=False, gc=False):
    """The common members of messages: `text` is JSON without braces, beginning with a comma."""

    text: bytes
    method: str
    protocol: str | None
    session: bytes | None
    """JSON."""
    is_usual: bool
    """Whether the method decides neither about the session nor about what is masked."""


@attrs.define(eq=False, repr=False)
class CommonMembers:
    """Common members for all ports, masked by one masker: a new secret needs a new masker."""

    masker: Masker
    _ports: dict[TracedPort, PortMembers] = attrs.field(factory=dict, init=False)

    def at(self, port: TracedPort) -> PortMembers:
        """Common members of the messages to a port."""
        found = self._ports.get(port)
        if found is None or found.sender is not port.sender:
            found = PortMembers(port, self.masker)
            _add(self._ports, port, found)
        return found


@attrs.define(eq=False, repr=False)
class PortMembers:
    """Protocol, ends, method, session, chain and hop of the messages to one port, and their
    times."""

    port: TracedPort
    _masker: Masker
    sender: str = attrs.field(init=False)
    hop: Hop = attrs.field(init=False)
    """The hop in front of the port."""
    times: RecordTimes = attrs.field(init=False)
    _members: dict[tuple[str, str | None, bytes | None, str], Common] = attrs.field(
        factory=dict, init=False
    )
    of_lines: ByBeginning = attrs.field(init=False)
    """Members of the lines of updates in the form that agents usually write, by their first
    bytes."""
    texts_of_lines: LineTexts = attrs.field(init=False)
    """Their texts."""
    prefixes: LinePrefixes = attrs.field(init=False)
    """Pieces of these lines, by their first bytes up to the session id, or further."""
    by_method: ByMethod = attrs.field(init=False)
    responses: Responses = attrs.field(init=False)
    """Members of the response to a request, which has no protocol."""

    def __attrs_post_init__(self) -> None:
        recorder = recorder_of(self.port)
        self.sender = self.port.sender
        self.hop = recorder.chain, recorder.hop(self.port)
        self.times = RecordTimes(recorder.started, recorder.started_at)
        self.by_method = ByMethod(self)
        self.responses = Responses(self)
        self.of_lines = ByBeginning(self, SESSION_UPDATE, PARAMS_START)
        self.texts_of_lines = LineTexts(self.of_lines)
        self.prefixes = LinePrefixes(self.of_lines)

    def of(
        self,
        method: str,
        protocol: str | None,
        session: bytes | None,
        sender: str | None = None,
    ) -> Common:
        sender = self.sender if sender is None else sender
        key = method, protocol, session, sender
        found = self._members.get(key)
        if found is None:
            text = self._text(method, protocol, session, sender)
            is_usual = protocol == "acp" and method not in _UNUSUAL
            found = Common(text, method, protocol, session, is_usual)
            _add(self._members, key, found)
        return found

    def _text(self, method: str, protocol: str | None, session: bytes | None, sender: str) -> bytes:
        recorder, receiver = recorder_of(self.port), self.port.component
        chain, hop = self.hop
        members = {
            **({} if protocol is None else {"protocol": protocol}),
            "from": recorder.label(sender),
            "to": recorder.label(receiver),
            "method": method,
            **({} if session is None else {"session": msgspec.Raw(session)}),
            "chain": chain,
            "sender": sender,
            "receiver": receiver,
            "hop": hop,
        }
        return b"," + self._masker.mask(_encode(members))[1:-1]


class ByMethod(dict[str, "ByBeginning"]):
    """Members of a method's ACP messages, by the first `BEGINNING` bytes of their params: 0.1 µs
    for a message, 0.6 if its session id is cut out."""

    def __init__(self, members: PortMembers) -> None:
        self._members = members

    def __missing__(self, method: str) -> ByBeginning:
        found = ByBeginning(self._members, method)
        _add(self, method, found)
        return found


class Responses(dict[Common, Common]):
    """Members of responses, which have no protocol, by those of their requests."""

    def __init__(self, members: PortMembers) -> None:
        self._members = members

    def __missing__(self, request: Common) -> Common:
        found = self._members.of(request.method, None, request.session)
        _add(self, request, found)
        return found


class ByBeginning(dict[bytes, Common]):
    """Common members by the first bytes of a message: `before`, then an object that begins with the
    session id. Raises `KeyError` for others."""

    def __init__(self, members: PortMembers, method: str, before: bytes = b"") -> None:
        self._members, self._method, self._before = members, method, before

    def __missing__(self, beginning: bytes) -> Common:
        session = session_at_start(beginning, len(self._before))
        if not session or not beginning.startswith(self._before):
            raise KeyError(beginning)
        found = self._members.of(self._method, "acp", session)
        _add(self, beginning, found)
        return found


class LineTexts(dict[bytes, bytes]):
    """The texts of `ByBeginning`, in one step for a column."""

    def __init__(self, commons: ByBeginning) -> None:
        self._commons = commons

    def __missing__(self, beginning: bytes) -> bytes:
        found = self._commons[beginning].text
        _add(self, beginning, found)
        return found


class LinePrefixes(dict[bytes, SessionPrefixes]):
    """Prefixes of sessions, by the first bytes of their lines. Raises `KeyError` like
    `ByBeginning`."""

    def __init__(self, commons: ByBeginning) -> None:
        self._commons = commons

    def __missing__(self, beginning: bytes) -> SessionPrefixes:
        members, params = self._commons[beginning].text, beginning[len(PARAMS_START) :]
        found = SessionPrefixes(members, params)
        _add(self, beginning, found, _MAX_SESSIONS)
        return found


def recorder_of(port: TracedPort) -> TraceRecorder:
    recorder = port.tracer
    assert isinstance(recorder, TraceRecorder)
    return recorder


def _add(table: MutableMapping[_K, _V], key: _K, value: _V, most: int = _MAX) -> None:
    """Add to a table, which is begun again if it is full."""
    if len(table) >= most:
        table.clear()
    table[key] = value
