"""Write the messages of a mailbox to an event stream."""

from __future__ import annotations

from collections import deque
from typing import Final

import trio

from conductor.network.sse import encode_event
from conductor.server.http.mailboxes import Mailbox
from conductor.server.http.request_response import RequestResponse

__all__ = ["send_events", "send_numbered_events"]

_WRITE_SIZE: Final = 65536
_COMMENT: Final = b":\n\n"


async def send_events(exchange: RequestResponse, mailbox: Mailbox) -> None:
    """Write messages as events until EOF, with comments while idle."""
    await exchange.write(_COMMENT)  # intermediaries must see an open stream
    while True:
        lines = None
        with trio.move_on_after(exchange.timeouts.keep_alive):
            lines = await mailbox.take()
        if lines is None:
            await exchange.write(_COMMENT)
        elif not lines:
            await exchange.write(b"", last=True)
            return
        else:
            await _write_events(exchange, mailbox, deque(lines))


async def _write_events(exchange: RequestResponse, mailbox: Mailbox, lines: deque[bytes]) -> None:
    """Write events in parts; the parts not written when the client disconnects are put back."""
    try:
        while lines:
            # hypercorn accepts data after a disconnect without an error.
            await trio.lowlevel.checkpoint()
            part = bytearray()
            while lines and len(part) < _WRITE_SIZE:
                part += b"data: %b\n\n" % lines.popleft()
            await exchange.write(bytes(part))
    finally:
        if lines:
            mailbox.put_back(list(lines))


async def send_numbered_events(exchange: RequestResponse, mailbox: Mailbox) -> None:
    """Write numbered events to a conductor: first the unacknowledged ones, then up to a window."""
    await exchange.write(_COMMENT)
    again = range(mailbox.sent.acknowledged + 1, mailbox.sent.last + 1)
    events = [mailbox.sent.get(number) for number in again]
    while True:
        if events:
            await exchange.write(b"".join([encode_event(e.text, e.number) for e in events]))
        events = []
        with trio.move_on_after(exchange.timeouts.keep_alive) as waiting:
            await mailbox.wait_for_space()
            events = await mailbox.take_numbered()
        if waiting.cancelled_caught:
            await exchange.write(_COMMENT)
        elif not events:
            await exchange.write(b"", last=True)
            return
