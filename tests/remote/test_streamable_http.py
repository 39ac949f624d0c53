"""Streamable HTTP, against a scripted server: what goes out when, and what servers differ in."""

from __future__ import annotations

import gc
import json
import socket
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
import trustme
from hypercorn.config import Config
from hypercorn.trio import serve
from support.raw_json import dumps, nested
from support.remote_agents import reach

from conductor.chainfile.model import Tls
from conductor.errors import RequestError
from conductor.limits import MAX_DEPTH, Limits
from conductor.network.sequence_numbers import SequenceError
from conductor.network.sse import ServerSentEvent
from conductor.remote.http_streams import _numbered_frame

INITIALIZED = {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}


@attrs.define
class Request:
    version: str
    method: str
    headers: dict[str, str]
    message: Any
    answer: Callable[..., Awaitable[None]]

    @property
    def session(self) -> str | None:
        return self.headers.get("acp-session-id")


@attrs.define
class Script:
    """A server that records requests and answers as a subclass decides."""

    requests: list[Request] = attrs.field(factory=list)
    streams: dict[str | None, trio.MemorySendChannel[bytes]] = attrs.field(factory=dict)
    opened: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)
    results: dict[str, Any] = attrs.field(
        factory=lambda: {
            "session/new": {"sessionId": "s1"},
            "session/load": {},
            "session/prompt": {"stopReason": "end_turn"},
        }
    )
    on_connection_stream: tuple[str, ...] = ("session/new", "session/load")

    async def post(self, request: Request) -> None:
        method = request.message.get("method")
        if method == "initialize":
            await request.answer(200, self.result(request, INITIALIZED), connection="c1")
            return
        await request.answer(202)
        if method in self.results:
            session = None if method in self.on_connection_stream else request.session
            await self.tell(session, self.result(request, self.results[method]))

    def result(self, request: Request, result: Any) -> bytes:
        answer = {"jsonrpc": "2.0", "id": request.message["id"], "result": result}
        return dumps(answer)

    async def tell(self, session: str | None, line: bytes) -> None:
        await self._wait_open(session)
        await self.streams[session].send(b"data: " + line + b"\n\n")

    async def end(self, session: str | None) -> None:
        await self._wait_open(session)
        await self.streams.pop(session).aclose()

    async def _wait_open(self, session: str | None) -> None:
        while session not in self.streams:
            await self.opened.park()

    async def stream(self, request: Request) -> int | None:
        """A status to refuse with."""
        return None

    def posted(self) -> list[str]:
        return [
            each.message.get("method", "answer") for each in self.requests if each.method == "POST"
        ]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise NotImplementedError  # as ASGI says that it does not care for its lifespan
        body = (await receive())["body"] if scope["method"] == "POST" else b""
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}

        async def answer(status: int, body: bytes = b"", connection: str | None = None) -> None:
            more = [(b"acp-connection-id", connection.encode())] if connection else []
            cookie = [(b"set-cookie", b"stick=here; Path=/")]
            start = {"status": status, "headers": [*more, *cookie]}
            await send({"type": "http.response.start", **start})
            await send({"type": "http.response.body", "body": body})

        message = json.loads(body) if body else None
        request = Request(scope["http_version"], scope["method"], headers, message, answer)
        self.requests.append(request)
        match request.method:
            case "POST":
                await self.post(request)
            case "GET":
                refusal = await self.stream(request)
                if refusal is not None:
                    await answer(refusal)
                    return
                await self._events(request.session, send)
            case _:
                await answer(202)

    async def _events(self, session: str | None, send: Any) -> None:
        telling, told = trio.open_memory_channel[bytes](100)
        self.streams[session] = telling
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b": open\n\n", "more_body": True})
        self.opened.unpark_all()
        async for event in told:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def served(script: Script, **settings: Any) -> AsyncIterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    config = Config.from_mapping(settings)
    config.bind = [f"fd://{listener.detach()}"]
    config.errorlog = None
    end = trio.Event()
    async with trio.open_nursery() as nursery:
        run: Any = serve
        (bind,) = await nursery.start(_serve, run, script, config, end)
        yield f"{bind}/acp"
        end.set()
        nursery.cancel_scope.cancel()


async def _serve(
    run: Any, script: Script, config: Config, end: trio.Event, task_status: Any
) -> None:
    await run(script, config, shutdown_trigger=end.wait, task_status=task_status)


async def test_the_id_of_the_connection_and_cookies_come_back_with_every_request():
    script = Script()
    async with served(script) as url, reach(connect=url) as client:
        await client.initialize()
        await client.new_session("/tmp")

    first, *others = script.requests
    assert "acp-connection-id" not in first.headers
    assert {each.headers["acp-connection-id"] for each in others} == {"c1"}
    assert {each.headers["cookie"] for each in others} == {"stick=here"}
    assert {each.method for each in others} == {"GET", "POST", "DELETE"}


async def test_on_plain_tcp_http2_is_spoken_with_a_server_that_knows_it():
    script = Script()
    async with served(script) as url, reach(connect=url) as client:
        await client.initialize()
        await client.new_session("/tmp")

    assert {each.version for each in script.requests} == {"2"}


@pytest.mark.parametrize(("offers", "spoken"), [(["h2", "http/1.1"], "2"), (["http/1.1"], "1.1")])
async def test_with_tls_both_ends_agree_on_the_version_of_http(offers, spoken, tmp_path):
    ca, cert, key = (str(tmp_path / name) for name in ("ca.pem", "cert.pem", "key.pem"))
    authority = trustme.CA()
    issued = authority.issue_cert("agents.internal")
    authority.cert_pem.write_to_path(ca)
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    script = Script()
    tls = Tls(ca=ca, server_name="agents.internal")
    async with (
        served(script, certfile=cert, keyfile=key, alpn_protocols=offers) as url,
        reach(connect=url, tls=tls) as client,
    ):
        await client.initialize()
        session = await client.new_session("/tmp")
        await client.prompt(session, "hello")

    assert url.startswith("https://")
    assert {each.version for each in script.requests} == {spoken}


@pytest.mark.parametrize("depth", [MAX_DEPTH, 970])
async def test_an_agent_whose_initialize_cannot_be_read_does_not_start(depth):
    class Deep(Script):
        async def post(self, request: Request) -> None:
            if request.message["method"] != "initialize":
                raise AssertionError("a message before it is initialized")
            text = b'{"jsonrpc":"2.0","id":%d,"result":{"protocolVersion":%b}}'
            body = text % (request.message["id"], nested(depth))
            await request.answer(200, body, connection="c1")

    async with served(Deep()) as url, reach(connect=url) as client:
        with pytest.raises(RequestError, match=r"nested|malformed"):
            await client.initialize()


async def test_the_id_may_be_in_the_answer_alone():
    class InTheBody(Script):
        async def post(self, request: Request) -> None:
            if request.message["method"] == "initialize":
                body = self.result(request, {**INITIALIZED, "connectionId": "c1"})
                await request.answer(200, body)
            else:
                await super().post(request)

    async with served(InTheBody()) as url, reach(connect=url) as client:
        await client.initialize()

        assert await client.new_session("/tmp") == "s1"


async def test_a_response_does_not_overtake_earlier_messages():
    class Asks(Script):
        async def post(self, request: Request) -> None:
            await super().post(request)
            if request.message.get("method") == "session/new":
                await self.tell(None, b'{"jsonrpc":"2.0","id":"q","method":"_x/ask"}')

    script = Asks()
    async with served(script) as url, reach(connect=url) as client:

        async def tell_and_answer(params: object) -> dict[str, Any]:
            for _ in range(20):
                client.notify("_x/told", {})
            return {}

        client.handlers["_x/ask"] = tell_and_answer
        await client.initialize()
        session = await client.new_session("/tmp")
        await client.transcript.wait(lambda last_received: last_received.method == "_x/ask")
        await client.prompt(session, "hello")

    posted = script.posted()
    assert posted[2:] == ["_x/told"] * 20 + ["answer", "session/prompt"] or posted[2:] == [
        "session/prompt",
        *["_x/told"] * 20,
        "answer",
    ]


async def test_an_answer_passes_a_post_that_waits_for_it():
    class Waits(Script):
        answered: trio.Event

        async def post(self, request: Request) -> None:
            match request.message.get("method"):
                case "_x/slow":
                    await self.tell(None, b'{"jsonrpc":"2.0","id":"q","method":"_x/ask"}')
                    await self.answered.wait()
                    await request.answer(202)
                    await self.tell(None, self.result(request, "at last"))
                case None:
                    self.answered.set()
                    await request.answer(202)
                case _:
                    await super().post(request)

    script = Waits()
    script.answered = trio.Event()
    async with served(script) as url, reach(connect=url) as client:

        async def answer(params: object) -> dict[str, Any]:
            return {}

        client.handlers["_x/ask"] = answer
        await client.initialize()

        assert await client.request("_x/slow", {}) == "at last"


async def test_a_message_refused_by_the_server_is_answered_and_the_connection_stays_open():
    class Picky(Script):
        async def post(self, request: Request) -> None:
            if request.message.get("method") == "_x/large":
                await request.answer(413, b"POST body too large")
            else:
                await super().post(request)

    async with served(Picky()) as url, reach(connect=url) as client:
        await client.initialize()
        with pytest.raises(RequestError) as caught:
            await client.request("_x/large", {})

        assert caught.value.code == -32603
        assert caught.value.data == f"{url} answered 413 (POST body too large)"
        assert await client.new_session("/tmp") == "s1"


@pytest.mark.parametrize("session", ["é", "a\r\nX-Evil: 1", "", " blank"])
async def test_a_session_id_invalid_in_a_header_is_refused_and_the_connection_stays_open(session):
    script = Script()
    script.results["session/new"] = {"sessionId": session}
    async with served(script) as url, reach(connect=url) as client:
        await client.initialize()
        assert await client.new_session("/tmp") == session
        with pytest.raises(RequestError) as caught:
            await client.prompt(session, "hi")
        script.results["session/new"] = {"sessionId": "s1"}

        assert "the session id is not a valid HTTP header value" in caught.value.data
        assert await client.new_session("/tmp") == "s1"
        assert (await client.prompt("s1", "hi"))["stopReason"] == "end_turn"


async def test_a_session_may_be_loaded_from_a_server_that_does_not_know_it_before():
    class Strict(Script):
        known: bool = False

        async def post(self, request: Request) -> None:
            if request.session is not None and not self.known:
                await request.answer(404, b"Unknown session id")
                return
            self.known = self.known or request.message["method"] == "session/load"
            await super().post(request)

        async def stream(self, request: Request) -> int | None:
            return None if request.session is None or self.known else 404

    script = Strict()
    async with served(script) as url, reach(connect=url) as client:
        await client.initialize()
        params = {"sessionId": "s7", "cwd": "/tmp", "mcpServers": []}
        await client.request("session/load", params)
        answer = await client.prompt("s7", "hello")

    assert answer == {"stopReason": "end_turn"}


async def test_an_ended_stream_is_opened_again(monkeypatch):
    monkeypatch.setattr("conductor.remote.http_streams._MIN_STREAM_SECONDS", 0)
    script = Script()
    async with served(script) as url, reach(connect=url) as client:
        await client.initialize()
        session = await client.new_session("/tmp")
        await client.prompt(session, "hello")
        await script.end("s1")

        assert await client.prompt(session, "hello") == {"stopReason": "end_turn"}


async def test_a_stream_that_ends_at_once_ends_the_connection():
    class Ends(Script):
        async def post(self, request: Request) -> None:
            await super().post(request)
            if request.message.get("method") == "_x/end":
                await self.end(None)

    async with (
        served(Ends()) as url,
        reach(connect=url, on_failure="end_chain") as client,
    ):
        await client.initialize()
        with pytest.raises(RequestError, match=f"lost its connection to {url}: its stream"):
            await client.request("_x/end", {})


async def test_a_stream_that_is_given_up_is_closed_before_the_garbage_collector_finds_it():
    class Talks(Script):
        async def post(self, request: Request) -> None:
            await super().post(request)
            if request.message.get("method") == "_x/long":
                await self.tell(None, b'"' + b"x" * 100_000 + b'"')

    limits = Limits(max_message_bytes=50_000)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        async with (
            served(Talks()) as url,
            reach(connect=url, on_failure="end_chain", limits=limits) as client,
        ):
            await client.initialize()
            with pytest.raises(RequestError, match="a message of more than 50000 bytes"):
                await client.request("_x/long", {})
        gc.collect()

    warned = [str(each.message) for each in caught]
    assert [each for each in warned if "httpcore2" not in each] == []  # pyproject.toml says why


async def test_an_answer_over_the_limit_is_neither_kept_nor_asked_for_again():
    class Long(Script):
        async def post(self, request: Request) -> None:
            if request.message.get("method") == "_x/long":
                await request.answer(200, bytes(100_000))
            else:
                await super().post(request)

    script, limits = Long(), Limits(max_message_bytes=50_000)
    async with (
        served(script) as url,
        reach(connect=url, on_failure="end_chain", limits=limits) as client,
    ):
        await client.initialize()
        with pytest.raises(RequestError, match="its answer has more than 50000 bytes"):
            await client.request("_x/long", {})

    assert script.posted().count("_x/long") == 1


@pytest.mark.parametrize("id", [None, "", "1.5", "\xb2", "\u0663", "9" * 5000])
def test_an_event_without_a_number_is_refused(id):
    with pytest.raises(SequenceError):
        _numbered_frame(ServerSentEvent(b"{}", id))
