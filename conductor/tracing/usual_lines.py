"""Lines of usual requests and responses: whole messages of ACP that neither set up a session nor
authenticate. Others are left to `message_lines`.

The pieces of a line are added to the block as they are, without a step that makes a line of them:
a fifth less time. Of the line, the payload is searched for secrets: the other members are masked
already, or are numbers of the trace.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
from msgspec import Raw

from conductor.tracing.common_members import BEGINNING, LINE_END, CommonMembers
from conductor.tracing.line_block import LineBlock
from conductor.tracing.notification_lines import cause_member
from conductor.tracing.open_requests import OpenRequest, OpenRequests
from conductor.tracing.payload_text import Payloads
from conductor.tracing.record_numbers import RecordNumbers
from conductor.tracing.record_times import elapsed
from conductor.tracing.size_members import SizeMembers

__all__ = ["UsualLines"]

_NO_LINKS: Final = (None, None)
_WITH_LINKS: Final = 9
_MAX_ID: Final = 99_999
"""Longer numbers may be known secrets."""
_LF: Final = ord("\n")
_CR: Final = ord("\r")
_REQUEST_SIZES: Final = SizeMembers(next=b"wire_id")
_RESPONSE_SIZES: Final = SizeMembers(next=b"payload")


@attrs.define(eq=False, repr=False)
class UsualLines:
    """Encodes requests and responses; entries are tuples with the members of a `Passage`. Nothing
    is added, numbered or looked up if a method returns false."""

    _payloads: Payloads
    _numbers: RecordNumbers
    _members: CommonMembers
    _open: OpenRequests

    def add_request(self, entry: tuple[Any, ...], block: LineBlock) -> bool:
        time, port, _, method, payload, call, wire_id, mark, cause = (
            entry if len(entry) == _WITH_LINKS else entry + _NO_LINKS
        )
        if type(payload) is not Raw or self._payloads != "full":
            return False
        params = bytes(payload)
        at = self._members.at(port)
        common = at.by_method[method].get(params[:BEGINNING])
        if (
            common is None
            or not common.is_usual
            or type(wire_id) is not int
            or not 0 <= wire_id <= _MAX_ID
            or _LF in params
            or _CR in params
        ):
            return False
        n = self._numbers.take(mark)
        number = b"%d" % n
        key = call, at.hop
        self._open[key] = OpenRequest(n, number, time, port, common, self._open.get(key))
        block.pieces += (
            b'{"type":"request",',
            at.times.members(time),
            b',"id":',
            number,
            b',"n":',
            number,
            common.text if cause is None else cause_member(cause) + common.text,
            _REQUEST_SIZES.member(len(params)),
            b"%d" % wire_id,
            b',"params":',
            params,
            LINE_END,
        )
        block.searched.append(params)
        return True

    def add_response(self, entry: tuple[Any, ...], block: LineBlock) -> bool:
        time, port, kind, _, payload, call, is_cancelled, mark, cause = (
            entry if len(entry) == _WITH_LINKS else entry + _NO_LINKS
        )
        at = self._members.at(port)
        key = call, at.hop
        request = self._open.get(key)
        if (
            request is None
            or not request.common.is_usual
            or kind != "response"
            or is_cancelled
            or type(payload) is not Raw
            or self._payloads != "full"
        ):
            return False
        result = bytes(payload)
        if _LF in result or _CR in result:
            return False
        if request.before is None:
            del self._open[key]
        else:
            self._open[key] = request.before
        common = at.responses[request.common]
        number = request.number
        block.pieces += (
            b'{"type":"response",',
            at.times.members(time),
            b',"id":',
            number,
            b',"is_error":false,"n":',
            b"%d" % self._numbers.take(mark),
            common.text if cause is None else cause_member(cause) + common.text,
            b',"request":',
            number,
            b',"elapsed":',
            *elapsed(time - request.time),
            _RESPONSE_SIZES.member(len(result)),
            result,
            LINE_END,
        )
        block.searched.append(result)
        return True
