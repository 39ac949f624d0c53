"""Model of a chain: actors that follow plans, and a ledger of all messages sent and received.

Every message of a model test carries a tag, a session, and a plan: what each hop, and the end that
it reaches, is to do with it. Actors with a link of their own (the ends and the raw proxies) are the
witnesses: they record what they read and write, in order. Plugins stand between witnesses and are
checked by their records.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any, Literal, TypeAlias

import attrs
import trio
from support.peers.wire import PassProxy, Peer
from support.raw_json import cut, dumps

from conductor.proxy import Proxy, RequestError, on

REQUEST, NOTE, FREE = "_m/request", "_m/note", "_m/free"
"""`FREE` is a method of either kind that no plugin handles."""
Direction: TypeAlias = Literal["right", "left"]
"""Right is toward the agent."""

Item: TypeAlias = tuple[str, int]
"""("request" | "note" | "answer", tag)"""


@attrs.define(eq=False)
class World:
    """The ledger, and the messages that actors keep for later."""

    sent: dict[str, dict[Direction, list[Item]]] = attrs.field(
        factory=lambda: defaultdict(lambda: {"right": [], "left": []})
    )
    came: dict[str, dict[Direction, list[Item]]] = attrs.field(
        factory=lambda: defaultdict(lambda: {"right": [], "left": []})
    )
    params: dict[int, dict[str, Any]] = attrs.field(factory=dict)
    """By tag, the params that it was sent with."""
    open: dict[str, Counter[bytes]] = attrs.field(factory=lambda: defaultdict(Counter))
    """By witness, the ids of requests that were not answered yet."""
    tags: dict[tuple[str, bytes], list[int]] = attrs.field(factory=lambda: defaultdict(list))
    """By witness and id, the tags of its requests that were not answered yet."""
    cancelled: set[int] = attrs.field(factory=set)
    """Tags of requests that an actor wanted to cancel."""
    parents: dict[int, int] = attrs.field(factory=dict)
    """By the tag of a hop's own message, the tag of the one that it was sent for."""
    anonymous: Counter[tuple[str, bytes]] = attrs.field(factory=Counter)
    """Cancellations of requests with this id that do not say which of them they answer."""
    free: set[int] = attrs.field(factory=set)
    """Tags of messages that no plugin handles."""
    batched: set[int] = attrs.field(factory=set)
    """Tags of requests in batches, which are answered in the order of their slots."""
    held: list[Any] = attrs.field(factory=list)
    """Callbacks that release messages kept by a hop or an end."""
    answers: list[tuple[str, int, Any]] = attrs.field(factory=list)
    """The response to each tag, by receiver."""
    last_tag: int = 0
    ending: bool = False
    """An actor was lost: its requests are cancelled."""

    def new(self, session: str, plan: dict[str, str], parent: int | None = None) -> dict[str, Any]:
        """The params of a new message."""
        self.last_tag += 1
        if parent is not None:
            self.parents[self.last_tag] = parent
        params = {"tag": self.last_tag, "sessionId": session, "plan": plan}
        self.params[self.last_tag] = params
        return params

    def is_cancelled(self, tag: int) -> bool:
        """Whether a cancellation was requested for this or for the request that caused it."""
        return self.ending or tag in self.cancelled or self.parents.get(tag) in self.cancelled

    def wrote(self, who: str, direction: Direction, kind: str, tag: int) -> None:
        self.sent[who][direction].append((kind, tag))

    def read(self, who: str, direction: Direction, kind: str, params: dict[str, Any]) -> None:
        assert params == self.params[params["tag"]], "a message changed on its way"
        self.came[who][direction].append((kind, params["tag"]))

    def asked(self, who: str, id: bytes, tag: int) -> None:
        self.open[who][id] += 1
        self.tags[who, id].append(tag)

    def answered(self, who: str, direction: Direction, message: dict[str, bytes]) -> int | None:
        """An answer came to `who`; returns its tag, unless equal ids make that impossible."""
        id = message["id"]
        assert self.open[who][id] > 0, f"{who} got an answer too many to {id!r}"
        self.open[who][id] -= 1
        tags = self.tags[who, id]
        if "result" in message:
            said = json.loads(message["result"])
        else:
            error = json.loads(message["error"])
            said = {"tag": error.get("data"), "error": error["code"]}
        tag = said["tag"]
        if tag not in tags:
            assert "error" in said, f"{who} got the answer to another request"
            if len(tags) > 1:
                assert said["error"] in (-32800, -32603)
                self.anonymous[who, id] += 1
                return None
            tag = tags[0]
        tags.remove(tag)
        self.came[who][direction].append(("answer", tag))
        self.answers.append((who, tag, said))
        return tag

    def keep(self, release: Any) -> None:
        self.held.append(release)

    def release(self, index: int) -> None:
        if self.held:
            self.held.pop(index % len(self.held))()


@attrs.define(eq=False)
class End(Peer):
    """The client or the agent: sends what the test says, answers as the plan says."""

    world: World = attrs.field(kw_only=True)
    toward: Direction = attrs.field(kw_only=True)
    """Where its messages go."""
    _asked: dict[bytes, list[tuple[int, list[bool]]]] = attrs.field(factory=dict)
    _ids_cancelled: list[bytes] = attrs.field(factory=list)
    started: bool = False
    """It has the answer to `initialize`."""
    mine: list[tuple[bytes, int]] = attrs.field(factory=list)
    """All requests it sent: id and tag."""

    @property
    def _from(self) -> Direction:
        return "left" if self.toward == "right" else "right"

    def take(self, line: bytes) -> None:
        if line.startswith(b"["):
            for member in json.loads(line):
                self._message({name: dumps(value) for name, value in member.items()})
        else:
            self._message(cut(line))

    def _message(self, message: dict[str, bytes]) -> None:
        method = json.loads(message.get("method", b"null"))
        if method == "initialize":
            self.send_line(b'{"jsonrpc":"2.0","id":%b,"result":{}}' % message["id"])
        elif method == "$/cancel_request":
            self._cancel(cut(message["params"])["requestId"])
        elif method is None and not self.started:
            self.started = True
        elif method is None:
            self.world.answered(self.name, self._from, message)
        elif method == "session/update":
            pass  # a notice of the conductor: a plan made a plugin fail
        else:
            params = json.loads(message["params"])
            kind = "request" if "id" in message else "note"
            self.world.read(self.name, self._from, kind, params)
            if kind == "request":
                self._request(message["id"], params)

    def _request(self, id: bytes, params: dict[str, Any]) -> None:
        tag, done = params["tag"], [False]
        self._asked.setdefault(id, []).append((tag, done))
        how = params["plan"].get("end", "now")
        if how == "later":
            self.world.keep(lambda: self._reply(id, tag, done, None))
        elif how == "refuse":
            self._reply(id, tag, done, -32000)
        else:
            self._reply(id, tag, done, None)

    def _cancel(self, id: bytes) -> None:
        assert id in self._asked, f"{self.name} is to cancel what it was not asked: {id!r}"
        assert id not in self._ids_cancelled, f"{self.name} is to cancel {id!r} twice"
        self._ids_cancelled.append(id)
        for tag, done in self._asked[id]:
            assert self.world.is_cancelled(tag), "nobody cancelled this"
            self._reply(id, tag, done, -32800)

    def _reply(self, id: bytes, tag: int, done: list[bool], code: int | None) -> None:
        if done[0]:
            return
        done[0] = True
        self.world.wrote(self.name, self.toward, "answer", tag)
        if code is None:
            body = b'"result":' + dumps({"tag": tag, "by": self.name})
        else:
            body = b'"error":' + dumps({"code": code, "message": "no", "data": tag})
        self.send_line(b'{"jsonrpc":"2.0","id":%b,%b}' % (id, body))

    # -- what the test makes it do -------------------------------------------------------------

    def message(
        self,
        session: str,
        plan: dict[str, str],
        id: bytes | None,
        *,
        free: bool = False,
        batched: bool = False,
    ) -> bytes:
        """A request (with an id) or a notification, entered as sent."""
        params = self.world.new(session, plan)
        if free:
            self.world.free.add(params["tag"])
        if batched:
            self.world.batched.add(params["tag"])
        kind = "note" if id is None else "request"
        self.world.wrote(self.name, self.toward, kind, params["tag"])
        if id is not None:
            self.world.asked(self.name, id, params["tag"])
            self.mine.append((id, params["tag"]))
        head = b"" if id is None else b'"id":%b,' % id
        method = FREE if free else NOTE if id is None else REQUEST
        return b'{"jsonrpc":"2.0",%b"method":"%b","params":%b}' % (
            head,
            method.encode(),
            dumps(params),
        )

    def cancel(self, index: int) -> None:
        if not self.mine:
            return
        id, _ = self.mine[index % len(self.mine)]
        self.world.cancelled.update(tag for each, tag in self.mine if each == id)
        params = b'{"requestId":%b}' % id
        self.send_line(b'{"jsonrpc":"2.0","method":"$/cancel_request","params":%b}' % params)


@attrs.define(eq=False)
class Hop(PassProxy):
    """A raw proxy that follows plans."""

    world: World = attrs.field(kw_only=True)
    hop: int = attrs.field(kw_only=True)
    _tag_of: dict[bytes, int] = attrs.field(factory=dict)
    """By the id that a request came with."""
    _then: dict[bytes, Any] = attrs.field(factory=dict)
    """By the id of a request of its own, what to do when it is answered."""
    _own_direction: dict[bytes, Direction] = attrs.field(factory=dict)
    """By such an id, where its answer goes."""

    def decide(self, message: dict[str, bytes], *, toward_agent: bool) -> None:
        params = json.loads(message["params"])
        tag, came = params["tag"], "right" if toward_agent else "left"
        kind = "request" if "id" in message else "note"
        self.world.read(self.name, came, kind, params)
        if "id" in message:
            self._tag_of[message["id"]] = tag

        def go_on() -> None:
            self.world.wrote(self.name, came, kind, tag)
            self.forward(message, toward_agent=toward_agent)

        match params["plan"].get(str(self.hop), "pass"):
            case "hold" | "release":
                self.world.keep(go_on)
            case "drop" if kind == "note":
                pass
            case "answer" | "refuse" | "crash" if kind == "request":
                self._answer(message["id"], tag, came, params["plan"][str(self.hop)] == "answer")
            case "ask" if kind == "request":
                self._own(params, go_on, toward_agent=toward_agent)
            case "back" if kind == "request":
                self._own(params, go_on, toward_agent=not toward_agent)
            case "notes":
                for right in (True, False):
                    self._own(params, None, toward_agent=right)
                go_on()
            case _:
                go_on()

    def forward(self, message: dict[str, bytes], *, toward_agent: bool) -> None:
        PassProxy.forward(self, message, toward_agent=toward_agent)
        if message.get("id") in self._tag_of:
            self.world.asked(self.name, self._given[message["id"]], self._tag_of[message["id"]])

    def on_response(self, message: dict[str, bytes]) -> None:
        id = message["id"]
        if id in self._then:
            self.world.answered(self.name, self._own_direction.pop(id), message)
            self._then.pop(id)()
            return
        theirs, toward_agent = self._open[id]
        if theirs in self._tag_of:
            back: Direction = "left" if toward_agent else "right"
            tag = self.world.answered(self.name, back, message)
            assert tag is not None
            self.world.wrote(self.name, back, "answer", tag)
        PassProxy.on_response(self, message)

    def on_cancel(self, theirs: bytes) -> None:
        assert theirs not in self.cancelled, f"{self.name} is to cancel {theirs!r} twice"
        assert theirs in self._tag_of, f"{self.name} is to cancel what it was not asked"
        assert self.world.is_cancelled(self._tag_of[theirs]), "nobody cancelled this"
        PassProxy.on_cancel(self, theirs)

    def _answer(self, id: bytes, tag: int, came: Direction, well: bool) -> None:
        self.world.wrote(self.name, "left" if came == "right" else "right", "answer", tag)
        if well:
            body = {"result": dumps({"tag": tag, "by": self.name})}
        else:
            body = {"error": dumps({"code": -32000, "message": "no", "data": tag})}
        self.reply(id, body)

    def _own(self, cause: dict[str, Any], then: Any, *, toward_agent: bool) -> None:
        params = self.world.new(cause["sessionId"], {}, cause["tag"])
        direction: Direction = "right" if toward_agent else "left"
        id = None if then is None else self.new_id()
        kind = "note" if then is None else "request"
        self.world.wrote(self.name, direction, kind, params["tag"])
        if id is not None:
            self.world.asked(self.name, id, params["tag"])
            self._then[id] = then
            self._own_direction[id] = "left" if toward_agent else "right"
        method = NOTE if then is None else REQUEST
        self.put(id, b'"%b"' % method.encode(), dumps(params), toward_agent=toward_agent)


@attrs.define(eq=False)
class PlanProxy(Proxy):
    """A plugin that follows plans."""

    world: World
    hop: int

    @on(REQUEST)
    async def obey(self, params: dict, forward):
        match params["plan"].get(str(self.hop), "pass"):
            case "hold":
                await self._until_released()
            case "release":
                self.release_lane()
                await self._until_released()
            case "answer":
                return {"tag": params["tag"], "by": f"p{self.hop}"}
            case "refuse":
                raise RequestError(-32000, "no", params["tag"])
            case "crash":
                raise ValueError("planned")
            case "ask":
                own = self._new(params)
                await self._peer(params).request(REQUEST, own)
            case "back":
                own = self._new(params)
                await self._peer(params, back=True).request(REQUEST, own)
            case "notes":
                await self.agent.notify(NOTE, self._new(params))
                await self.client.notify(NOTE, self._new(params))
        return await forward()

    @on(NOTE)
    async def obey_note(self, params: dict, forward):
        match params["plan"].get(str(self.hop), "pass"):
            case "drop":
                return
            case "hold":
                await self._until_released()
            case "release":
                self.release_lane()
                await self._until_released()
            case "notes":
                await self.agent.notify(NOTE, self._new(params))
                await self.client.notify(NOTE, self._new(params))
        await forward()

    def _new(self, cause):
        return self.world.new(cause["sessionId"], {}, cause["tag"])

    def _peer(self, params, *, back=False):
        to_agent = (params["plan"]["from"] == "client") != back
        return self.agent if to_agent else self.client

    async def _until_released(self) -> None:
        released = trio.Event()
        self.world.keep(released.set)
        await released.wait()
