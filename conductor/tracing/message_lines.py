"""Lines of a trace for requests, responses, cancellations, and notifications of other kinds than
`notification_lines` encodes: of MCP, without params, or of which only the beginning was kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs
from msgspec import Raw

from conductor.acp import SESSION_SETUP_METHODS
from conductor.jsonrpc.messages import CANCEL, encode_id
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.tracing.common_members import BEGINNING, CommonMembers, recorder_of
from conductor.tracing.line_block import LineBlock
from conductor.tracing.masking import current_masker
from conductor.tracing.notification_lines import NotificationLines, cause_member, with_links
from conductor.tracing.open_requests import OpenRequest, OpenRequests
from conductor.tracing.passage import Passage
from conductor.tracing.payload_text import Payloads, kept, mcp_message, payload_text, session_of
from conductor.tracing.record_numbers import RecordNumbers
from conductor.tracing.usual_lines import UsualLines

__all__ = ["MessageLines"]

_MCP: Final = "mcp/message"
_SINGLE: Final = (bytes, Raw)
"""Payloads of one message, kept whole."""


@attrs.define(eq=False, repr=False)
class MessageLines:
    """Numbers and encodes messages; several chains may take turns."""

    payloads: Payloads
    numbers: RecordNumbers = attrs.field(factory=RecordNumbers, init=False)
    _open: OpenRequests = attrs.field(factory=OpenRequests, init=False)
    _members: CommonMembers = attrs.field(init=False)
    _notifications: NotificationLines = attrs.field(init=False)
    _usual: UsualLines = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._mask_with_current()

    def add(self, entries: Iterable[tuple[Any, ...]], block: LineBlock) -> None:
        """Add the lines of messages, each with the members of a `Passage`, to a block."""
        if self._members.masker is not current_masker():
            self._mask_with_current()
        usual = self._usual
        for entry in entries:
            kind = entry[2]
            if kind == "notification":
                self._add_notification(entry, block)
            elif kind == "request":
                if not usual.add_request(entry, block):
                    block.add(self._request(entry))
            elif not usual.add_response(entry, block):
                block.add(self._response(entry))

    def _mask_with_current(self) -> None:
        self._members = CommonMembers(current_masker())
        self._notifications = NotificationLines(self.payloads, self.numbers, self._members)
        self._usual = UsualLines(self.payloads, self.numbers, self._members, self._open)

    # -- notifications -----------------------------------------------------------------------------

    def _add_notification(self, entry: tuple[Any, ...], block: LineBlock) -> None:
        payload = entry[4]
        if isinstance(payload, _SINGLE) and entry[3] != _MCP:
            self._notifications.single(entry, block)
        elif not isinstance(payload, NotificationBatch):
            passage = Passage(*entry)
            lines = self._cancellations if passage.call else self._other_notification
            block.add(lines(passage))
        elif entry[3] != _MCP:
            self._notifications.batch(entry, block)
        else:
            passage = Passage(*entry)
            for index, params in enumerate(map(bytes, payload.params)):
                mark = None if passage.mark is None else passage.mark.part(index)
                block.add(self._other_notification(passage._replace(payload=params, mark=mark)))

    def _other_notification(self, passage: Passage) -> bytes:
        data, size, count, is_whole = kept(passage.payload)
        protocol, server, method = "acp", b"", passage.method
        session = session_of(data, is_whole=is_whole)
        if method == _MCP and data is not None:
            protocol, server, method, data = mcp_message(method, data)
        at = self._members.at(passage.port)
        return b'{"type":"notification",%b,"n":%d%b%b%b%b,"size":%d,"params":%b}\n' % (
            at.times.members(passage.time),
            self.numbers.take(passage.mark),
            cause_member(passage.cause),
            at.of(method, protocol, session).text,
            server,
            b',"count":%d' % count if count > 1 else b"",
            size,
            payload_text(data, self.payloads, is_whole=is_whole),
        )

    # -- requests and responses --------------------------------------------------------------------

    def _request(self, entry: tuple[Any, ...]) -> bytes:
        time, port, _, method, payload, call, wire_id, mark, cause = with_links(entry)
        data, size, _, is_whole = kept(payload)
        n = self.numbers.take(mark)
        at, server = self._members.at(port), b""
        try:
            if data is None or method == _MCP or not is_whole:
                raise KeyError
            common = at.by_method[method][data[:BEGINNING]]
        except KeyError:
            session, protocol = session_of(data, is_whole=is_whole), "acp"
            if method == _MCP and is_whole and data is not None:
                protocol, server, method, data = mcp_message(method, data)
            common = at.of(method, protocol, session)
        key = call, at.hop
        before = self._open.get(key)
        self._open[key] = OpenRequest(n, b"%d" % n, time, port, common, before)
        return (
            b'{"type":"request",%b,"id":%d,"n":%d%b%b%b,"size":%d,"wire_id":%b,"params":%b}\n'
            % (
                at.times.members(time),
                n,
                n,
                b"" if cause is None else cause_member(cause),
                common.text,
                server,
                size,
                encode_id(wire_id),
                payload_text(data, self.payloads, is_whole=is_whole),
            )
        )

    def _response(self, entry: tuple[Any, ...]) -> bytes:
        time, port, kind, method, payload, call, is_cancelled, mark, cause = with_links(entry)
        data, size, _, is_whole = kept(payload)
        n = self.numbers.take(mark)
        at = self._members.at(port)
        request = self._open.answered(call, at.hop, method)
        if request is None:
            protocol, more, id = "acp", b"", n
            common = at.of(method, None, None)
        else:
            common, id = at.responses[request.common], request.n
            method, protocol = request.common.method, request.common.protocol or ""
            cancelled = b',"cancelled":true' if is_cancelled else b""
            more = b',"request":%d,"elapsed":%.6f%b' % (id, time - request.time, cancelled)
        is_error = kind == "error"
        if method in SESSION_SETUP_METHODS and not is_error and is_whole:
            common = at.of(method, None, session_of(data) or common.session)
        failed = b'true,"error_domain":"%b"' % protocol.encode() if is_error else b"false"
        return (
            b'{"type":"response",%b,"id":%d,"is_error":%b,"n":%d%b%b%b,"size":%d,"payload":%b}\n'
            % (
                at.times.members(time),
                id,
                failed,
                n,
                b"" if cause is None else cause_member(cause),
                common.text,
                more,
                size,
                payload_text(data, self.payloads, is_whole=is_whole),
            )
        )

    # -- cancellations -----------------------------------------------------------------------------

    def _cancellations(self, passage: Passage) -> bytes:
        """The lines of a cancellation: one for each hop that the open request has passed.

        If the conductor cancelled it, there is one, for the hop of the port. A request without a
        record, of the conductor's own, has none.
        """
        here = self._members.at(passage.port)
        chain, last = here.hop
        sender = None if passage.detail else "conductor"
        hops = range(len(recorder_of(passage.port).components)) if passage.detail else (last,)
        cancelled = self._open.cancelled(passage.call, ((chain, hop) for hop in hops))
        if not cancelled:
            return b""
        first, lines = self.numbers.take(passage.mark, len(cancelled)), []
        times = here.times.members(passage.time)
        for n, request in enumerate(cancelled, first):
            at = self._members.at(request.port)
            members = at.of(CANCEL, "acp", request.common.session, sender).text
            params = b'{"requestId":%d}' % request.n
            lines.append(
                b'{"type":"notification",%b,"n":%d%b,"request":%d,"size":%d,"params":%b}\n'
                % (times, n, members, request.n, len(params), params)
            )
        return b"".join(lines)
