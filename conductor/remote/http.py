"""Carries a component's messages over Streamable HTTP: POST to the server, streams of events back.

What is said goes out one POST at a time, in order. Only where a POST takes long, answers do not
wait for it: the server may be waiting for just that, as a proxy does while it is initialized. Every
session has a stream of its own, opened before the first message that names the session, or when the
answer comes that sets it up.

A server of ours says for how long it keeps what is ours: events are numbered and acknowledged
there, a stream goes on behind the last one that arrived, and a POST that got no answer is sent
again under its number, by which it is taken once.
"""

from __future__ import annotations

from collections import deque
from http.cookiejar import CookieJar
from typing import Final

import attrs
import httpx2
import trio

from conductor.messages import INTERNAL_ERROR, encode_error
from conductor.remote.address import Address
from conductor.remote.carrying import RESUME, SEQUENCE
from conductor.remote.http_client import Clients
from conductor.remote.http_requests import CONNECTION, JSON, SESSION, Requests
from conductor.remote.http_streams import IN_A_HEADER, Streams
from conductor.remote.letters import SET_UPS, Letter, Sessions, body_with_connection, read_letter
from conductor.remote.link import RemoteLink
from conductor.remote.network import warn_of_plain_credentials
from conductor.remote.refusals import refusal, server_words

__all__ = ["carry"]

_NO_HEADER: Final = "the id of this session cannot be in a header, where HTTP wants it: use ws://"
_WAITING: Final = 1024 * 1024
"""Bytes that may wait to be posted before no more is taken."""
_LONG: Final = 0.5
"""Seconds after which answers pass a POST that has no answer itself."""
_GOODBYE: Final = 1.0


async def carry(
    link: RemoteLink, address: Address, cookies: CookieJar, ping_timeout: float
) -> None:
    """Be the connection with the endpoint at this address."""
    warn_of_plain_credentials(address)
    clients = Clients(address, cookies, ping_timeout)
    await clients.open()
    requests, sessions = Requests(link, address, clients), Sessions()
    try:
        async with trio.open_nursery() as nursery:
            streams = Streams(link, requests, sessions, nursery)
            posts = _Posts(link, requests, streams, sessions, nursery)
            nursery.start_soon(posts.sort)
            nursery.start_soon(streams.watch, ping_timeout)
            await posts.post_in_order()
            nursery.cancel_scope.cancel()
    finally:
        with trio.move_on_after(_GOODBYE, shield=True):
            await requests.say_goodbye()
        with trio.move_on_after(_GOODBYE, shield=True):
            await clients.short.aclose()
    link.end(f"closed its connection at {link.where}")


@attrs.define(eq=False)
class _Posts:
    """What is said, in line."""

    link: RemoteLink
    requests: Requests
    streams: Streams
    sessions: Sessions
    nursery: trio.Nursery
    _posted: int = attrs.field(default=0, init=False)
    """Messages that were posted, to a server of ours."""
    _waiting: deque[Letter] = attrs.field(factory=deque, init=False)
    _waiting_size: int = attrs.field(default=0, init=False)
    _at_end: bool = attrs.field(default=False, init=False)
    _moved: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    async def sort(self) -> None:
        """Put in line what is to be posted."""
        while lines := await self.link.lines.receive():
            for letter in map(read_letter, lines):
                self._waiting.append(letter)
                self._waiting_size += len(letter.line)
                self._moved.unpark_all()
                while self._waiting_size > _WAITING:
                    await self._moved.park()
        self._at_end = True
        self._moved.unpark_all()

    async def post_in_order(self) -> None:
        while True:
            while not self._waiting:
                if self._at_end:
                    return
                await self._moved.park()
            letter = self._waiting.popleft()
            async with trio.open_nursery() as nursery:
                if self.requests.connection is None:
                    nursery.start_soon(self._let_answers_pass, 0.0)
                    await self._initialize(letter)
                else:
                    nursery.start_soon(self._let_answers_pass, _LONG)
                    await self._post(letter)
                nursery.cancel_scope.cancel()
            self._taken(letter)

    async def _let_answers_pass(self, after: float) -> None:
        await trio.sleep(after)
        while True:
            for letter in [each for each in self._waiting if each.kind == "response"]:
                self._waiting.remove(letter)
                self._taken(letter)
                self.nursery.start_soon(self._post, letter)
            await self._moved.park()

    def _taken(self, letter: Letter) -> None:
        self._waiting_size -= len(letter.line)
        self._moved.unpark_all()

    async def _initialize(self, letter: Letter) -> None:
        if not letter.initializes:
            await self._refuse(letter, "the connection is not initialized", b"")
            return
        try:
            async with self.requests.clients.short.stream(
                "POST",
                self.requests.address.url,
                headers={"Content-Type": JSON, "Accept": JSON, RESUME: "1"},
                content=letter.line,
                extensions=self.requests.extensions,
            ) as response:
                self.link.reached = True
                status = response.status_code
                self.requests.persevering.keep = _seconds(response.headers.get(RESUME))
                if status == 200 and (id := response.headers.get(CONNECTION)) is not None:
                    # A proxy asks its successor, over the stream, before it answers.
                    self._connected(id)
                body = await response.aread()
        except httpx2.HTTPError as exc:
            self.requests.fail(exc)
            return
        if status != 200:
            self.link.end(refusal(self.requests.address, status, body))
            return
        if self.requests.connection is None and (id := body_with_connection(body)) is not None:
            self._connected(id)
        if self.requests.connection is None and b'"result"' in body:
            self.link.lost("it did not give the connection an id: is it an ACP server?")
            return
        await self.streams.deliver([body.strip()])

    def _connected(self, id: str) -> None:
        self.requests.connection = id
        self.streams.open(None)

    async def _post(self, letter: Letter) -> None:
        session = self.sessions.posts(letter)
        if session is not None and not IN_A_HEADER(session):
            await self._refuse(letter, _NO_HEADER, b"")
            return
        if session is not None and letter.kind != "response":
            self.streams.open(session)
        number = {}
        if self.requests.is_ours:
            self._posted += 1
            number = {SEQUENCE: str(self._posted)}
        headers = number if session is None else {**number, SESSION: session}
        try:
            response = await self.requests.persist("POST", headers, letter.line)
            if response.status_code == 404 and session is not None and letter.method in SET_UPS:
                # There are servers to which no session is known before it is set up.
                response = await self.requests.persist("POST", number, letter.line)
                session = None
        except httpx2.HTTPError as exc:
            self.requests.fail(exc)
            return
        status, body = response.status_code, response.content
        forgotten = status == 404 and (session is None or CONNECTION.encode() in body)
        if status == 200 and body:
            await self.streams.deliver([body])
        elif response.is_success:
            return
        elif status in (401, 403, 407, 429) or status >= 500 or forgotten:
            self.link.lost(f"it answered {status}{server_words(body)}")
        else:
            await self._refuse(letter, f"{self.link.where} answered {status}", body)

    async def _refuse(self, letter: Letter, reason: str, body: bytes) -> None:
        """The server does not take this message; the connection goes on."""
        if letter.kind != "request":
            return
        error = encode_error(INTERNAL_ERROR, "Internal error", reason + server_words(body))
        await self.streams.deliver(
            [b'{"jsonrpc":"2.0","id":%s,"error":%s}' % (letter.id, bytes(error))]
        )


def _seconds(text: str | None) -> float:
    """As a server of ours says how long it keeps what is ours; 0 for any other."""
    try:
        return float(text or 0)
    except ValueError:
        return 0.0
