"""A chain as its chain file states it, with programs that the test plays: no process is started.

Each start of a component's program is a `Process`, which has a `Peer` as its far end. The test ends
it as a program ends: by an exit status, a signal or a closed stream. Everything else is the
product: the chain file, supervision, plugins, adapters.
"""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import attrs
import trio
from trio.testing import wait_all_tasks_blocked

from conductor import log
from conductor.background_tasks import background_tasks
from conductor.chain.build import components_of, spec_of
from conductor.chain.chain import Chain
from conductor.chain.shutdown import Ending
from conductor.chain.start_failure import FailureContext
from conductor.chainfile import load
from conductor.routing.component import Component
from conductor.supervision.supervisor import SupervisedComponent
from conductor.transport.memory import memory_pair
from conductor.transport.spawn import SpawnError
from support.peers.wire import PassProxy, Peer

Message = dict[str, Any]


class Process:
    """An `Endpoint` in memory: one process of a program, played by `peer`."""

    location = "memory"
    reached = True

    def __init__(self, make_peer: Callable[..., Peer], name: str, *, ignores_sigterm: bool) -> None:
        self.transport, self.far = memory_pair()
        self.peer = make_peer(self.far, name)
        self.status: str | None = None
        self.stopped: str | None = None
        """What a `ChildProcess` says of a stopped process; set by the test."""
        self.signals: list[tuple[str, float]] = []
        """Signals that it got, each with its time."""
        self._ignores_sigterm = ignores_sigterm
        self._exited = trio.Event()
        self._stderr = b""
        self._printed = trio.lowlevel.ParkingLot()

    # -- for tests ---------------------------------------------------------------------------------

    async def exit(self, status: int) -> None:
        await self.end(f"exited with status {status}")

    async def end(self, status: str = "was ended by SIGKILL") -> None:
        """End it after it has written what it was told to; wait until the conductor has noticed."""
        await wait_all_tasks_blocked()
        self._end(status)
        await wait_all_tasks_blocked()

    def print(self, text: str) -> None:
        """Print a line on stderr."""
        self._stderr += text.encode() + b"\n"
        self._printed.unpark_all()

    # -- Endpoint ----------------------------------------------------------------------------------

    async def wait(self) -> str:
        if self.status is None:
            async with background_tasks() as tasks:
                tasks.start_soon(self._play)
                await self._exited.wait()
        assert self.status is not None
        return self.status

    async def read_stderr(self) -> bytes:
        while not self._stderr and self.status is None:
            await self._printed.park()
        printed, self._stderr = self._stderr, b""
        return printed

    def signal(self, number: signal.Signals) -> None:
        self.signals.append((number.name, trio.current_time()))
        if number is signal.SIGKILL or not self._ignores_sigterm:
            self._end(f"was ended by {number.name}")

    def close(self) -> None:
        self.transport.close()

    async def _play(self) -> None:
        await self.peer.run()
        self._end("exited with status 0")

    def _end(self, status: str) -> None:
        if self.status is None:
            self.status = status
            self.far.close()
            self._exited.set()
            self._printed.unpark_all()


@attrs.define(eq=False)
class Program:
    """What the `run` of a component starts."""

    name: str
    make_peer: Callable[..., Peer]
    processes: list[Process] = attrs.field(factory=list)
    missing: bool = False
    """From now on it cannot be started."""
    ignores_sigterm: bool = False
    times: list[float] = attrs.field(factory=list)
    """When each process was started."""
    _started: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)

    def launch(self, max_message_bytes: int) -> Process:
        if self.missing:
            raise SpawnError(f"command not found: {self.name}")
        self.times.append(trio.current_time())
        name = f"{self.name}#{len(self.times)}"
        process = Process(self.make_peer, name, ignores_sigterm=self.ignores_sigterm)
        self.processes.append(process)
        self._started.unpark_all()
        return process

    async def wait_started(self) -> None:
        """Wait for the next process, if none runs."""
        with trio.fail_after(60):
            while not self.processes or self.process.status is not None:
                await self._started.park()

    @property
    def process(self) -> Process:
        """The present process, or the last."""
        return self.processes[-1]


@attrs.define(eq=False)
class PlayedChain:
    """The client, the programs by name, and what is logged from level info on."""

    client: Peer
    programs: dict[str, Program]
    chain: Chain
    version: Literal[1, 2] = 1
    logged: list[tuple[str, Message]] = attrs.field(factory=list)
    """Events and their fields."""
    ending: Ending | None = None
    ended: trio.Event = attrs.field(factory=trio.Event)

    def __getitem__(self, name: str) -> Process:
        """The present process of a program."""
        return self.programs[name].process

    @property
    def agent(self) -> Peer:
        return self["agent"].peer

    async def initialize(
        self, result: Message | None = None, **params: Any
    ) -> tuple[Message, Message]:
        """Play the handshake of client and agent; proxies play for themselves.

        Returns the params that the agent has received, and the client's answer.
        """
        asked = {"protocolVersion": self.version, **params}
        self.client.send({"id": "init", "method": "initialize", "params": asked})
        received = await self.serve("initialize", result or {"protocolVersion": self.version})
        answer = await self.client.receive()
        assert answer["id"] == "init"
        return received, answer

    async def open(
        self, *sessions: str, able: Message | None = None, client_able: Message | None = None
    ) -> None:
        """Initialize and set sessions up; `able` are the capabilities of the agent."""
        v1 = self.version == 1
        result = {"protocolVersion": self.version}
        result |= {"agentCapabilities" if v1 else "capabilities": able or {}}
        await self.initialize(
            result, **{"clientCapabilities" if v1 else "capabilities": client_able or {}}
        )
        for session in sessions:
            await self.new_session(session)

    async def new_session(self, session: str, **more: Any) -> None:
        params = {"cwd": f"/{session}", "mcpServers": [], **more}
        self.client.send({"id": session, "method": "session/new", "params": params})
        await self.serve("session/new", {"sessionId": session})
        assert await self.client.receive() == {"id": session, "result": {"sessionId": session}}

    async def expect(self, method: str, of: str = "agent") -> Message:
        """The next message to a program, which has this method; waits until it runs."""
        await self.programs[of].wait_started()
        message = await self[of].peer.receive()
        assert message.get("method") == method, message
        return message

    async def serve(self, method: str, result: Any = None, of: str = "agent") -> Any:
        """Answer the next request to a program, which has this method; returns its params."""
        request = await self.expect(method, of)
        self[of].peer.answer(request, result)
        return request["params"]

    async def refuse(self, method: str, code: int, message: str) -> None:
        """Refuse the next request to the agent, which has this method."""
        request = await self.expect(method)
        self.agent.refuse(request, code, message)

    async def prompt(self, id: int | str, session: str = "s1", text: str = "go") -> Message:
        """Send a prompt; returns it as the agent has received it.

        In version 2 the agent accepts it and reports that the turn runs.
        """
        self.client.send(prompt(id, session, text))
        request = await self.expect("session/prompt")
        if self.version == 2:
            self.agent.answer(request, {"messageId": f"m{id}"})
            self.agent.send(state("running", session))
            assert (await self.client.receive())["id"] == id
            assert await self.client.receive() == state("running", session)
        return request

    def finish(self, request: Message, session: str = "s1", reason: str = "end_turn") -> None:
        """End the turn of a prompt that the agent has received."""
        if self.version == 1:
            self.agent.answer(request, {"stopReason": reason})
        else:
            self.agent.send(state("idle", session, stopReason=reason))

    async def whole_turn(self, id: int | str, session: str = "s1") -> None:
        """Play a turn from its prompt to its end."""
        self.finish(await self.prompt(id, session), session)
        await self.client.receive()

    async def restart_agent(self, *sessions: str, able: Message | None = None) -> None:
        """Play the restart of an agent with these capabilities, which resumes these sessions."""
        able = {"agentCapabilities" if self.version == 1 else "capabilities": able or {}}
        await self.serve("initialize", {"protocolVersion": self.version, **able})
        for session in sessions:
            assert (await self.serve("session/resume"))["sessionId"] == session

    def events(self, name: str) -> list[Message]:
        """The fields of each logged event of this name."""
        return [fields for event, fields in self.logged if event == name]

    async def wait_ended(self) -> Ending:
        with trio.fail_after(600):
            await self.ended.wait()
        assert self.ending is not None
        return self.ending


@asynccontextmanager
async def played_chain(
    directory: Path,
    agent: Message | None = None,
    *proxies: Message,
    version: Literal[1, 2] = 1,
    explains: bool = False,
    peers: Mapping[str, Callable[..., Peer]] | None = None,
    made: Callable[[Sequence[Component]], None] = lambda components: None,
    mode: Literal["agent", "proxy"] = "agent",
    **keys: Any,
) -> AsyncIterator[PlayedChain]:
    """A running chain of the components of a chain file; at the end the client sends EOF.

    Components are the mappings of a chain file. Those without `use` are programs, played by
    `peers[name]`: proxies pass everything on without it. `keys` are further keys of the file.
    `explains`: `on_start_failure: explain`.
    """
    path = directory / "chain.yaml"
    content = {"version": 1, **keys, "proxies": [_component(each) for each in proxies]}
    if mode == "agent":
        content["agent"] = _component({"name": "agent", **(agent or {})})
    path.write_text(json.dumps(content))
    makers = {"agent": Peer, **(peers or {})}
    names = ["agent", *(each["name"] for each in proxies)]
    programs = {name: Program(name, makers.get(name, PassProxy)) for name in names}

    def make() -> Sequence[Component]:
        components = components_of(load(str(path)))
        for each in components:
            if isinstance(each, SupervisedComponent) and each.kind == "process":
                each.launch = programs[each.name].launch
        made(components)
        return components

    file = load(str(path))
    ours, theirs = memory_pair()
    chain = Chain(
        theirs,
        spec_of(file, make),
        failure_context=FailureContext(file=str(path), log=None) if explains else None,
    )
    harness = PlayedChain(Peer(ours, "client"), programs, chain, version)

    async def run() -> None:
        harness.ending = await chain.run()
        harness.ended.set()

    before = log._listener
    log.listen(lambda level, event, fields: harness.logged.append((event, fields)))
    try:
        async with background_tasks() as tasks:
            tasks.start_soon(harness.client.run)
            tasks.start_soon(run)
            yield harness
            harness.client.start_reading()
            harness.client.close()
            await harness.wait_ended()
    finally:
        log.listen(before)  # the trace recorder's


def _component(keys: Message) -> Message:
    return keys if "use" in keys or "run" in keys else {"run": [keys["name"]], **keys}


# -- messages --------------------------------------------------------------------------------------


def prompt(id: int | str, session: str = "s1", text: str = "go") -> Message:
    params = {"sessionId": session, "prompt": [{"type": "text", "text": text}]}
    return {"id": id, "method": "session/prompt", "params": params}


def cancel_turn(session: str = "s1") -> Message:
    return {"method": "session/cancel", "params": {"sessionId": session}}


def cancel_request(id: int | str) -> Message:
    return {"method": "$/cancel_request", "params": {"requestId": id}}


def update(kind: str, session: str = "s1", **members: Any) -> Message:
    params = {"sessionId": session, "update": {"sessionUpdate": kind, **members}}
    return {"method": "session/update", "params": params}


def state(name: str, session: str = "s1", **members: Any) -> Message:
    """The state of a session (version 2)."""
    return update("state_update", session, state=name, **members)


def said(text: str, session: str = "s1") -> Message:
    return update("agent_message_chunk", session, content={"type": "text", "text": text})


def told(message: Message) -> tuple[str, str]:
    """Session and text of what the conductor says to the user, by a notice or in the chat."""
    params = message["params"]
    found = params["update"]
    if found["sessionUpdate"] == "notice":
        return params["sessionId"], "; ".join(
            filter(None, (found["title"], found.get("description")))
        )
    assert found["sessionUpdate"] == "agent_message_chunk"
    return params["sessionId"], found["content"]["text"].strip("\n")
