"""Lines of a trace for requests, responses, cancellations, and notifications of other kinds than
`notification_lines` encodes: of MCP, without params, or of which only the beginning was kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final

import attrs

from conductor.acp import SESSION_SETUP_METHODS
from conductor.jsonrpc.messages import CANCEL, encode_id
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.traced_port import Passage, TracedPort
from conductor.tracing.common_members import CommonMembers, recorder_of
from conductor.tracing.line_block import LineBlock
from conductor.tracing.masking import current_masker
from conductor.tracing.notification_lines import NotificationLines, cause_member, times
from conductor.tracing.open_requests import OpenRequest, OpenRequests
from conductor.tracing.payload_text import Payloads, kept, mcp_message, payload_text, session_of
from conductor.tracing.record_numbers import RecordNumbers

__all__ = ["MessageLines"]

_MCP: Final = "mcp/message"


@attrs.define(eq=False, repr=False)
class MessageLines:
    """Numbers and encodes messages; several chains may take turns."""

    payloads: Payloads
    numbers: RecordNumbers = attrs.field(factory=RecordNumbers, init=False)
    _open: OpenRequests = attrs.field(factory=OpenRequests, init=False)
    _members: CommonMembers = attrs.field(init=False)
    _notifications: NotificationLines = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._mask_with_current()

    def add(self, entries: Iterable[tuple[Any, ...]], block: LineBlock) -> None:
        """Add the lines of messages, each with the members of a `Passage`, to a block."""
        if self._members.masker is not current_masker():
            self._mask_with_current()
        for is_single, some in groupby(entries, _plain_notification):
            if is_single:
                self._notifications.singles(list(some), block)
                continue
            for entry in some:
                self._add(Passage(*entry), block)

    def _mask_with_current(self) -> None:
        self._members = CommonMembers(current_masker())
        self._notifications = NotificationLines(self.payloads, self.numbers, self._members)

    def _add(self, passage: Passage, block: LineBlock) -> None:
        kind, payload = passage.kind, passage.payload
        if kind == "request":
            block.add(self._request(passage))
        elif kind != "notification":
            block.add(self._response(passage))
        elif passage.call:
            for line in self._cancellations(passage):
                block.add(line)
        elif not isinstance(payload, NotificationBatch):
            block.add(self._other_notification(passage))
        elif passage.method == _MCP:
            for index, params in enumerate(map(bytes, payload.params)):
                mark = None if passage.mark is None else passage.mark.part(index)
                block.add(self._other_notification(passage._replace(payload=params, mark=mark)))
        else:
            self._notifications.batch(passage, payload, block)

    # -- notifications -----------------------------------------------------------------------------

    def _other_notification(self, passage: Passage) -> bytes:
        data, size, count, is_whole = kept(passage.payload)
        protocol, server, method = "acp", b"", passage.method
        session = session_of(data, is_whole=is_whole)
        if method == _MCP and data is not None:
            protocol, server, method, data = mcp_message(method, data)
        return b'{"type":"notification",%b,"n":%d%b%b%b%b,"size":%d,"params":%b}\n' % (
            times(passage.port, passage.time),
            self.numbers.take(passage.mark),
            cause_member(passage.cause),
            self._members.of(passage.port, method, protocol, session),
            server,
            b',"count":%d' % count if count > 1 else b"",
            size,
            payload_text(data, self.payloads, is_whole=is_whole),
        )

    # -- requests and responses --------------------------------------------------------------------

    def _request(self, passage: Passage) -> bytes:
        time, port, _, method, payload, call, wire_id, mark, cause = passage
        data, size, _, is_whole = kept(payload)
        n = self.numbers.take(mark)
        session = session_of(data, is_whole=is_whole)
        protocol, server = "acp", b""
        if method == _MCP and is_whole and data is not None:
            protocol, server, method, data = mcp_message(method, data)
        opened = OpenRequest(n, time, port, method, protocol, session)
        self._open.add(call, self._members.hop(port), opened)
        return (
            b'{"type":"request",%b,"id":%d,"n":%d%b%b%b,"size":%d,"wire_id":%b,"params":%b}\n'
            % (
                times(port, time),
                n,
                n,
                cause_member(cause),
                self._members.of(port, method, protocol, session),
                server,
                size,
                encode_id(wire_id),
                payload_text(data, self.payloads, is_whole=is_whole),
            )
        )

    def _response(self, passage: Passage) -> bytes:
        time, port, kind, method, payload, call, is_cancelled, mark, cause = passage
        data, size, _, is_whole = kept(payload)
        n = self.numbers.take(mark)
        request = self._open.answered(call, self._members.hop(port), method)
        session, protocol, more, id = None, "acp", b"", n
        if request is not None:
            id, method, protocol, session = (
                request.n,
                request.method,
                request.protocol,
                request.session,
            )
            more = b',"request":%d,"elapsed":%.6f' % (id, time - request.time)
            if is_cancelled:
                more += b',"cancelled":true'
        is_error = kind == "error"
        if not is_error and method in SESSION_SETUP_METHODS and is_whole:
            session = session_of(data) or session
        failed = b'true,"error_domain":"%b"' % protocol.encode() if is_error else b"false"
        return (
            b'{"type":"response",%b,"id":%d,"is_error":%b,"n":%d%b%b%b,"size":%d,"payload":%b}\n'
            % (
                times(port, time),
                id,
                failed,
                n,
                cause_member(cause),
                self._members.of(port, method, None, session),
                more,
                size,
                payload_text(data, self.payloads, is_whole=is_whole),
            )
        )

    # -- cancellations -----------------------------------------------------------------------------

    def _cancellations(self, passage: Passage) -> list[bytes]:
        """The lines of a cancellation: one for each hop that the open request has passed.

        If the conductor cancelled it, there is one, for the hop of the port. A request without a
        record, of the conductor's own, has none.
        """
        chain, last = self._members.hop(passage.port)
        sender = None if passage.detail else "conductor"
        hops = range(len(recorder_of(passage.port).components)) if passage.detail else (last,)
        cancelled = self._open.cancelled(passage.call, ((chain, hop) for hop in hops))
        if not cancelled:
            return []
        first, lines = self.numbers.take(passage.mark, len(cancelled)), []
        for n, request in enumerate(cancelled, first):
            members = self._members.of(request.port, CANCEL, "acp", request.session, sender)
            params = b'{"requestId":%d}' % request.n
            lines.append(
                b'{"type":"notification",%b,"n":%d%b,"request":%d,"size":%d,"params":%b}\n'
                % (
                    times(passage.port, passage.time),
                    n,
                    members,
                    request.n,
                    len(params),
                    params,
                )
            )
        return lines


def _plain_notification(entry: tuple[Any, ...]) -> tuple[TracedPort, str] | None:
    """Port and method of a notification that came alone, to be encoded with those beside it."""
    if entry[2] != "notification" or type(entry[4]) is not bytes or entry[3] == _MCP:
        return None
    return entry[1], entry[3]
