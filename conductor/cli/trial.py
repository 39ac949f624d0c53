"""Trial of a chain in this process: it starts for a client of the command, and is ended.

For `check --start`, `doctor`, `login` and `try`: each has its own client's work and report, and all
have the start, its times and its failure from here.

Commands that run a chain in their own process must end although a plugin is stuck
(`attached_chain`, also of `prompt` and `trace replay`): the first signal cancels the block and
stops the chain in order, the second one kills it. A plugin that does not end is given up
`stop_timeout` seconds after the stop began, with its name and handler in the log. One that blocks
the event loop for so long ends the process, if the command says so.
"""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

import attrs
import msgspec
import trio

from conductor.background_tasks import background_tasks
from conductor.chain.chain import Chain
from conductor.chain.components import ChainSpec
from conductor.chain.shutdown import abandoned_plugins
from conductor.chain.stdio_server import exit_now
from conductor.chain.watchdog import Watchdog, max_stop_seconds, watchdog
from conductor.chainfile.model import ChainFile, ComponentSpec
from conductor.cli.login_help import AUTH_CAPABILITY
from conductor.client.acp_client import Client
from conductor.client.embedding import AttachedClient, attach, attach_file
from conductor.errors import ConnectionClosed, RemoteProtocolError, RequestError
from conductor.proxy.agent_questions import agent_questions
from conductor.routing.component import Component
from conductor.supervision.initialization import Initialization
from conductor.transport.orphan_guard import start_orphan_guard
from conductor.transport.process_tree import become_subreaper, kill_descendants

__all__ = [
    "EDITOR_CAPABILITIES",
    "SIGNALS",
    "Trial",
    "UnaskedCalls",
    "attached_chain",
    "prepare_process",
    "take_stdout",
]

SIGNALS: Final = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
_ENDING: Final = "ending the chain; press again to kill it"
AnyAttachedClient = TypeVar("AnyAttachedClient", bound=AttachedClient[Any])

EDITOR_CAPABILITIES: Final[Mapping[str, Any]] = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "auth": AUTH_CAPABILITY,
}
_TEST_AGENT: Final = ComponentSpec(name="test-agent", use="test-agent")


def prepare_process() -> None:
    """Make programs that a chain leaves behind children of this process, which end with it."""
    become_subreaper()
    start_orphan_guard()


def take_stdout() -> int:
    """Prepare this process for a chain; return the file descriptor of stdout.

    Plugins run in this process: their output goes to stderr.
    """
    prepare_process()
    stdout = os.dup(1)
    os.dup2(2, 1)
    return stdout


@attrs.frozen
class UnaskedCalls:
    """Calls of an agent about which it does not ask, in a chain that decides by its questions."""

    text: str
    helps: Sequence[str]
    """What the user can do."""
    only_reads: bool


@attrs.define(eq=False)
class Trial:
    """A chain, and how far it got."""

    file: ChainFile
    signals: list[int] = attrs.field(factory=list)
    """The signals that have ended it."""
    code: int = 1
    """Exit code of the process if no signal ends it."""
    components: Sequence[str] = attrs.field()
    """The names of those of the file; once started, without those that `when:` leaves out."""
    waited: dict[str, float] = attrs.field(factory=dict)
    """Seconds for which the chain waited for each program or connection during initialization.

    All components start concurrently, so this is the time that a faster start of the component
    would save, not its start time. In-process components are not measured.
    """
    seconds: float | None = None
    """Time to the `initialize` result; `None`: the chain did not start."""
    answer: Mapping[str, Any] = attrs.field(factory=dict)
    """The `initialize` result."""
    session_seconds: float | None = None
    """Time to the answer to `session/new`."""
    error: RequestError | RemoteProtocolError | ConnectionClosed | None = None
    """Why a request of the client has no result."""
    limit: float = math.inf
    """Seconds that the client waits for all of it."""
    is_overdue: bool = False
    waits_for: Sequence[str] = ()
    """Components or MCP servers that it waited for in the end."""

    @components.default
    def _all_components(self) -> Sequence[str]:
        return [spec.name for spec in self.file.flat()]

    @property
    def tried(self) -> ChainFile:
        """The chain; one of proxies is tried alone, with the test agent."""
        if self.file.agent is not None:
            return self.file
        return msgspec.structs.replace(self.file, agent=_TEST_AGENT)

    @property
    def exit_code(self) -> int:
        return 128 + self.signals[0] if self.signals else self.code

    @asynccontextmanager
    async def running(
        self,
        client: Callable[..., Client] = Client,
        spec: ChainSpec | None = None,
        *,
        max_blocked: float | None = None,
        before_exit: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[AttachedClient[Any]]:
        """Run the chain for the block, which a signal cancels: that of the file, or of `spec`.
        `max_blocked`, `before_exit`: see `attached_chain`."""
        async with background_tasks() as tasks:
            if spec is None:
                attached = attach_file(client, self.tried, made=partial(self._watch, tasks))
            else:
                attached = attach(client, spec)
            async with attached_chain(
                attached,
                self.signals,
                self.leave,
                max_blocked=max_blocked,
                before_exit=before_exit,
            ) as running:
                yield running

    def leave(self) -> NoReturn:
        """End all programs, and the process."""
        kill_descendants()
        exit_now(self.exit_code)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Keep the error of a request in the block, which ends it."""
        try:
            yield
        except (RequestError, RemoteProtocolError, ConnectionClosed) as exc:
            self.error = exc

    async def start(
        self,
        attached: AttachedClient[Any],
        capabilities: Mapping[str, Any] = EDITOR_CAPABILITIES,
        version: int = 1,
        params: Mapping[str, Any] | None = None,
    ) -> bool:
        """Start the chain by `initialize`, with these capabilities or params; whether it did."""
        begin, client = trio.current_time(), attached.client
        with self.failing():
            if params is None:
                self.answer = await client.initialize(version=version, capabilities=capabilities)
            else:
                self.answer = await client.initialize_with(params)
            self.seconds = trio.current_time() - begin
            running = {each.name for each in attached.chain.components}
            self.components = [name for name in self.components if name in running]
        return self.error is None

    async def open_session(self, attached: AttachedClient[Any]) -> str | None:
        """Open a session in the working directory; its id, if it opens."""
        begin, session = trio.current_time(), None
        client: Client = attached.client
        with self.failing():
            session = await client.new_session(os.getcwd())
            self.session_seconds = trio.current_time() - begin
        return session

    def unasked_calls(self) -> UnaskedCalls | None:
        """Calls of the agent about which it does not ask, if a proxy decides by requests."""
        specs = self.tried.flat()
        deciding = [spec.name for spec in specs if _decides_by_requests(spec)]
        info = self.answer.get("agentInfo") or self.answer.get("info")
        known = agent_questions(str(info.get("name"))) if isinstance(info, Mapping) else None
        text = known.text() if known is not None else None
        if known is None or text is None or not deciding:
            return None
        helps = [each for each in (known.help(),) if each is not None]
        agent = specs[-1]
        if agent.run is not None and agent.sandbox is None and agent.ssh is None:
            helps.append("`sandbox: true` under `agent:` limits what it can do without asking")
        message = f"{text}: `{'`, `'.join(deciding)}` cannot decide about that"
        return UnaskedCalls(message, helps, known.is_governed)

    def _watch(self, tasks: trio.Nursery, components: Sequence[Component]) -> None:
        for component in components:
            initialization = getattr(component, "initialization", None)
            if initialization is not None:
                tasks.start_soon(self._add_up, component.name, initialization)

    async def _add_up(self, name: str, initialization: Initialization) -> None:
        """Add up the time during which the initialization has a deadline."""
        while not initialization.done:
            since, is_initializing = trio.current_time(), initialization.deadline != math.inf
            await initialization.changed.wait()
            if is_initializing:
                self.waited[name] = self.waited.get(name, 0.0) + trio.current_time() - since


def _decides_by_requests(spec: ComponentSpec) -> bool:
    if spec.use == "permissions":
        return True
    hooks = spec.options.get("hooks") if spec.use == "hooks" else None
    entries = hooks if isinstance(hooks, list) else []
    return any(
        "permission" in (each.get("events") or ()) for each in entries if isinstance(each, Mapping)
    )


@asynccontextmanager
async def attached_chain(
    attached: AbstractAsyncContextManager[AnyAttachedClient],
    signals: list[int],
    leave: Callable[[], NoReturn],
    *,
    max_blocked: float | None = None,
    interrupt: Callable[[], bool] = lambda: False,
    note: Callable[[str], None] | None = None,
    before_exit: Callable[[], None] = lambda: None,
) -> AsyncIterator[AnyAttachedClient]:
    """Run a chain of `attach` for the block, which a signal cancels; its number is in `signals`.

    `leave` ends the process; it is called instead of a return if a plugin still runs. A plugin that
    blocks the event loop for `max_blocked` seconds ends the process with exit code 1, after
    `before_exit`. `interrupt` is called for a first SIGINT: whether the block goes on nevertheless;
    `note` tells the user what happens, by default on stderr.
    """

    async def handle_signals(
        chain: Chain,
        work: trio.CancelScope,
        task_status: trio.TaskStatus[Watchdog] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Stop the chain in order on the first signal, kill it on the second."""
        with (
            trio.open_signal_receiver(*SIGNALS) as received,
            watchdog(
                chain.spec.stop_timeout, SIGNALS, max_blocked=max_blocked, before_exit=before_exit
            ) as dog,
        ):
            task_status.started(dog)
            async for number in received:
                signals.append(number)
                if signals == [signal.SIGINT] and interrupt():
                    continue
                if signals == [signal.SIGINT]:
                    (note or _say)(_ENDING)
                work.cancel()
                if len(signals) > 1:
                    chain.kill()

    async with (
        background_tasks() as nursery,
        abandoned_plugins(leave) as plugins,
        attached as client_and_chain,
    ):
        chain = client_and_chain.chain
        chain.plugin_nursery = plugins
        with trio.CancelScope() as work:
            dog = await nursery.start(handle_signals, chain, work)
            yield client_and_chain
        dog.end_within(max_stop_seconds(chain.spec.stop_timeout))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
