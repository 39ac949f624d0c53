"""Carries a component's messages over Streamable HTTP: POST to the server, streams of events back.

What is said goes out one POST at a time, in order. Only where a POST takes long, answers do not
wait for it: the server may be waiting for just that, as a proxy does while it is initialized. Every
session has a stream of its own, opened before the first message that names the session, or when the
answer comes that sets it up. Streams are read side by side: the order of messages is kept within a
stream, and so within a session.

A stream that ends is opened again, because there may be somebody between who ends long requests,
and a server keeps what it has for a stream until somebody reads it; one that ends at once, or is
cut in the middle, ends the connection.

Not so with a server of ours, which says for how long it keeps what is ours: events are numbered and
acknowledged there, a stream goes on behind the last one that arrived, and a POST that got no answer
is sent again under its number, by which it is taken once.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.cookiejar import CookieJar
from typing import Final

import attrs
import httpx2
import trio

from conductor.errors import ConnectionClosed
from conductor.messages import INTERNAL_ERROR, encode_error
from conductor.remote.address import Address
from conductor.remote.carrying import RECEIVED, RESUME, SEQUENCE
from conductor.remote.http_client import Clients
from conductor.remote.letters import SET_UPS, Letter, Sessions, body_with_connection, read_letter
from conductor.remote.link import RemoteLink
from conductor.remote.network import nobody_listens, warn_of_plain_credentials
from conductor.remote.numbering import Incoming, Numbered, OutOfStep
from conductor.remote.perseverance import Perseverance
from conductor.remote.refusals import refusal, server_words
from conductor.remote.sse import Event, EventReader, OverlongEvent

__all__ = ["carry"]

_CONNECTION: Final = "Acp-Connection-Id"
_SESSION: Final = "Acp-Session-Id"
_LAST_EVENT: Final = "Last-Event-ID"
_IN_A_HEADER: Final = re.compile(r"[!-~]([ -~]*[!-~])?").fullmatch
_NO_HEADER: Final = "the id of this session cannot be in a header, where HTTP wants it: use ws://"
_EVENTS: Final = "text/event-stream"
_JSON: Final = "application/json"
_WAITING: Final = 1024 * 1024
"""Bytes that may wait to be posted before no more is taken."""
_AT_ONCE: Final = 1.0
"""A stream that ends within so many seconds is not opened again."""
_LONG: Final = 0.5
"""Seconds after which answers pass a POST that has no answer itself."""
_GOODBYE: Final = 1.0
_TRY_AGAIN: Final = frozenset({408, 425, 502, 503, 504})
"""Statuses of whoever is between us and a server of ours, or of one that is about to end."""
_CUT: Final = 0
"""In place of a status: there was none, or what followed was cut."""


async def carry(
    link: RemoteLink, address: Address, cookies: CookieJar, ping_timeout: float
) -> None:
    """Be the connection with the endpoint at this address."""
    warn_of_plain_credentials(address)
    clients = Clients(address, cookies, ping_timeout)
    await clients.open()
    exchange = _Exchange(link, address, clients, ping_timeout)
    try:
        async with trio.open_nursery() as nursery:
            exchange.nursery = nursery
            nursery.start_soon(exchange.sort)
            nursery.start_soon(exchange.watch)
            await exchange.post_in_order()
            nursery.cancel_scope.cancel()
    finally:
        with trio.move_on_after(_GOODBYE, shield=True):
            await exchange.say_goodbye()
        with trio.move_on_after(_GOODBYE, shield=True):
            await clients.short.aclose()
    link.end(f"closed its connection at {link.where}")


@attrs.define(eq=False)
class _Exchange:
    link: RemoteLink
    address: Address
    clients: Clients
    ping_timeout: float
    nursery: trio.Nursery = attrs.field(init=False)
    connection: str | None = attrs.field(default=None, init=False)
    sessions: Sessions = attrs.field(factory=Sessions, init=False)
    heard: float = attrs.field(factory=trio.current_time, init=False)
    """When the server last said anything."""
    _persevering: Perseverance = attrs.field(
        default=attrs.Factory(lambda self: Perseverance(where=self.link.where), takes_self=True),
        init=False,
    )
    _posts: int = attrs.field(default=0, init=False)
    """Messages that were posted, to a server of ours."""
    _events: dict[str | None, Incoming] = attrs.field(factory=dict, init=False)
    """What its streams have brought, by session."""
    _attempts: set[trio.CancelScope] = attrs.field(factory=set, init=False)
    """Requests that are under way."""
    _streams: set[str] = attrs.field(factory=set, init=False)
    """Sessions whose stream is open, or is being opened."""
    _waiting: deque[Letter] = attrs.field(factory=deque, init=False)
    _waiting_size: int = attrs.field(default=0, init=False)
    _at_end: bool = attrs.field(default=False, init=False)
    _moved: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)
    _unread: int = attrs.field(default=0, init=False)
    """Streams whose messages wait for us."""

    # -- out -----------------------------------------------------------------------------------

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
                if self.connection is None:
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

    async def say_goodbye(self) -> None:
        if self.connection is None or self.link.is_lost:
            return
        try:
            await self._request("DELETE", {})
        except httpx2.HTTPError:
            return  # the server finds out by itself

    async def _initialize(self, letter: Letter) -> None:
        if not letter.initializes:
            await self._refuse(letter, "the connection is not initialized", b"")
            return
        try:
            async with self.clients.short.stream(
                "POST",
                self.address.url,
                headers={"Content-Type": _JSON, "Accept": _JSON, RESUME: "1"},
                content=letter.line,
                extensions=self._extensions,
            ) as response:
                self.link.reached = True
                status = response.status_code
                self._persevering.keep = _seconds(response.headers.get(RESUME))
                if status == 200 and (id := response.headers.get(_CONNECTION)) is not None:
                    # A proxy asks its successor, over the stream, before it answers.
                    self._connected(id)
                body = await response.aread()
        except httpx2.HTTPError as exc:
            self._fail(exc)
            return
        if status != 200:
            self.link.end(refusal(self.address, status, body))
            return
        if self.connection is None and (id := body_with_connection(body)) is not None:
            self._connected(id)
        if self.connection is None and b'"result"' in body:
            self.link.lost("it did not give the connection an id: is it an ACP server?")
            return
        await self._deliver([body.strip()])

    def _connected(self, id: str) -> None:
        self.connection = id
        self.nursery.start_soon(self._keep_stream, None)

    async def _post(self, letter: Letter) -> None:
        session = self.sessions.posts(letter)
        if session is not None and not _IN_A_HEADER(session):
            await self._refuse(letter, _NO_HEADER, b"")
            return
        if session is not None and letter.kind != "response":
            self._open_stream(session)
        number = {}
        if self._is_ours:
            self._posts += 1
            number = {SEQUENCE: str(self._posts)}
        headers = number if session is None else {**number, _SESSION: session}
        try:
            response = await self._persist("POST", headers, letter.line)
            if response.status_code == 404 and session is not None and letter.method in SET_UPS:
                # There are servers to which no session is known before it is set up.
                response = await self._persist("POST", number, letter.line)
                session = None
        except httpx2.HTTPError as exc:
            self._fail(exc)
            return
        status, body = response.status_code, response.content
        forgotten = status == 404 and (session is None or _CONNECTION.encode() in body)
        if status == 200 and body:
            await self._deliver([body])
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
        await self._deliver([b'{"jsonrpc":"2.0","id":%s,"error":%s}' % (letter.id, bytes(error))])

    @property
    def _is_ours(self) -> bool:
        return self._persevering.keep > 0

    async def _persist(
        self, method: str, headers: dict[str, str], content: bytes
    ) -> httpx2.Response:
        """A request that a server of ours gets again until it has answered."""
        while True:
            response: httpx2.Response | None = None
            error: httpx2.HTTPError = httpx2.ReadTimeout("it did not answer")
            with self._attempt():
                try:
                    response = await self._request(method, headers, content)
                except httpx2.HTTPError as exc:
                    error = exc
            if response is not None and response.status_code not in _TRY_AGAIN:
                self._persevering.reached()
                return response
            nobody = response is None and nobody_listens(error)
            if not await self._persevering.try_again(nobody=nobody):
                if response is None:
                    raise error
                return response

    @contextmanager
    def _attempt(self) -> Iterator[None]:
        """What happens in the block ends when the connection is found to be dead."""
        with trio.CancelScope() as scope:
            self._attempts.add(scope)
            try:
                yield
            finally:
                self._attempts.discard(scope)

    def _cut(self) -> None:
        """What is under way will not be answered: let it be tried again, over other connections."""
        dead, self.clients.short = self.clients.short, self.clients.new()
        self.nursery.start_soon(dead.aclose)
        for scope in self._attempts:
            scope.cancel()

    async def _request(
        self, method: str, headers: dict[str, str], content: bytes | None = None
    ) -> httpx2.Response:
        if content is not None:
            headers["Content-Type"] = headers["Accept"] = _JSON
        if self.connection is not None:
            headers[_CONNECTION] = self.connection
        response = await self.clients.short.request(
            method, self.address.url, headers=headers, content=content, extensions=self._extensions
        )
        self.heard = trio.current_time()
        return response

    @property
    def _extensions(self) -> dict[str, str]:
        name = self.address.tls.server_name
        return {} if name is None else {"sni_hostname": name}

    # -- in ------------------------------------------------------------------------------------

    def _open_stream(self, session: str) -> None:
        if session not in self._streams:
            self._streams.add(session)
            self.nursery.start_soon(self._keep_stream, session)

    async def _keep_stream(self, session: str | None) -> None:
        """Read a stream, and again when it has ended."""
        while True:
            began = trio.current_time()
            status = _CUT
            error: httpx2.HTTPError = httpx2.ReadTimeout("it did not answer")
            try:
                with self._attempt():
                    async with self.clients.new() as client:
                        status = await self._read_stream(client, session)
            except httpx2.HTTPError as exc:
                error = exc
            except OutOfStep as exc:
                self.link.lost(f"it cannot be resumed: {exc}")
                return
            except OverlongEvent:
                limit = self.link.max_message_bytes
                self.link.lost(f"it sent a message of more than {limit} bytes")
                return
            except ConnectionClosed:
                return
            if session is not None and (status == 404 or session in self.sessions.ended):
                self._streams.discard(session)  # it is opened when the session is set up
                return
            may_go_on = self._is_ours and status in _TRY_AGAIN | {200, _CUT}
            nobody = status == _CUT and nobody_listens(error)
            if may_go_on and await self._persevering.try_again(nobody=nobody):
                continue
            if status == _CUT:
                self._fail(error)
                return
            if status != 200 or trio.current_time() - began < _AT_ONCE:
                why = "ended" if status == 200 else f"was refused: {status}"
                self.link.lost(f"its stream of events {why}")
                return

    async def _read_stream(self, client: httpx2.AsyncClient, session: str | None) -> int:
        assert self.connection is not None
        headers = {"Accept": _EVENTS, "Cache-Control": "no-store", _CONNECTION: self.connection}
        if session is not None:
            headers[_SESSION] = session
        if self._is_ours:
            headers[_LAST_EVENT] = str(self._events.setdefault(session, Incoming()).taken)
            await self.link.lines.send(())  # what was cut short
        reader = EventReader(self.link.max_message_bytes)
        async with client.stream(
            "GET", self.address.url, headers=headers, extensions=self._extensions
        ) as response:
            self.heard = trio.current_time()
            if response.status_code != 200:
                return response.status_code
            self._persevering.reached()
            async for chunk in response.aiter_bytes():
                self.heard = trio.current_time()
                lines = self._taken_from(reader.feed(chunk), session)
                if lines:
                    await self._deliver(lines)
        return 200

    def _taken_from(self, events: list[Event], session: str | None) -> list[bytes]:
        """The messages that are new, and what is to be said about them to a server of ours."""
        if not self._is_ours:
            return [event.data for event in events if event.data]
        incoming, now = self._events[session], trio.current_time()
        lines = []
        for event in events:
            if event.id is None or not event.id.isdecimal():
                raise OutOfStep("an event has no number")
            incoming.put(Numbered(int(event.id), event.data))
            if (line := incoming.take(now)) is not None:
                lines.append(line)
        if (due := incoming.acknowledgement(now)) is not None:
            self.nursery.start_soon(self._acknowledge, session, due.number)
        return lines

    async def _acknowledge(self, session: str | None, number: int) -> None:
        headers = {} if session is None else {_SESSION: session}
        with self._attempt(), suppress(httpx2.HTTPError):  # the next one says it, too
            await self._request("POST", {**headers, RECEIVED: str(number)}, b"")

    async def _deliver(self, lines: list[bytes]) -> None:
        for line in lines:
            session = self.sessions.arrives(read_letter(line))
            if session is not None and _IN_A_HEADER(session):
                self._open_stream(session)
        self._unread += 1
        try:
            await self.link.lines.send(lines)
        finally:
            self._unread -= 1

    # -- whether it is there -------------------------------------------------------------------

    async def watch(self) -> None:
        """Ask a server that is silent whether it is there: any answer will do."""
        half = self.ping_timeout / 2
        asked = trio.current_time()
        while True:
            await trio.sleep_until(max(self.heard, asked) + half)
            if self.connection is None or self._unread or trio.current_time() < self.heard + half:
                asked = trio.current_time()
                continue
            asked = trio.current_time()
            try:
                with trio.fail_after(half):
                    await self._request("OPTIONS", {})
            except httpx2.HTTPError as exc:
                if self._is_ours:
                    self._cut()
                    continue
                self._fail(exc)
                return
            except trio.TooSlowError:
                if self._is_ours:
                    self._cut()
                    continue
                self.link.lost(f"it did not answer within {self.ping_timeout:g} s (ping_timeout)")
                return

    def _fail(self, error: httpx2.HTTPError) -> None:
        why = self.clients.why(error)
        if self.link.reached:
            self.link.lost(why)
        else:
            self.link.end(f"could not be reached at {self.link.where}: {why}")


def _seconds(text: str | None) -> float:
    """As a server of ours says how long it keeps what is ours; 0 for any other."""
    try:
        return float(text or 0)
    except ValueError:
        return 0.0
