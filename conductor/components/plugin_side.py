"""The two sides of a plugin, and what is behind an agent.

A message that nobody asks to see, while its lane is free, goes straight on at the price of a look
into a set; anything else queues in the lane. Here is nothing that waits.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Final, Literal, Protocol

from conductor.connection.calls import Call
from conductor.connection.lanes import Answer, Item, Lane, Notification, Request
from conductor.connection.runs import Run
from conductor.messages import INVALID_REQUEST, METHOD_NOT_FOUND, Payload, encode_error
from conductor.proxy.declare import EVERYTHING, Handler
from conductor.proxy.peers import Tap
from conductor.routing.sides import Side
from conductor.session_ids import session_of

__all__ = ["UPDATE", "AgentEnd", "PluginSide", "two_sides"]

UPDATE: Final = "session/update"


class Owner(Protocol):
    """Whoever serves the lanes of two sides."""

    def serve(self, side: PluginSide) -> None:
        """Somebody has to take this side's lane."""

    def queue(self, side: PluginSide, item: Request) -> None:
        """A request for a handler is about to wait in this side's lane."""

    def cancel(self, call: Call) -> None: ...

    def unread_bytes(self, side: PluginSide) -> int:
        """What waits outside of the chain for readers of what came through this side."""

    def dispose(self, side: PluginSide, item: Item) -> None:
        """A message came after the end."""


class PluginSide(Side):
    """One side of a plugin: what is put here travels in `lane`, and leaves through `other`.

    `source` is the peer whose messages arrive here.
    """

    __slots__ = (
        "_kept",
        "_owner",
        "_taps",
        "closed",
        "handlers",
        "initialized",
        "lane",
        "observer",
        "opened",
        "other",
        "source",
        "special",
        "watched",
    )

    other: PluginSide

    def __init__(
        self,
        owner: Owner,
        source: Literal["client", "agent"],
        lane: Lane,
        handlers: dict[str, Handler],
    ) -> None:
        super().__init__()
        self._owner = owner
        self.source = source
        self.lane = lane
        self.observer = handlers.pop(EVERYTHING, None)
        self.handlers = handlers
        self.closed = False
        self.initialized = False
        self.opened = False
        """Whether the plugin has started: `initialize` waits for that, handled or not."""
        self.special = False
        """Whether there are taps, or updates to keep back."""
        self.watched: Container[str] = ()
        self._taps: dict[str, list[Tap]] = {}
        self._kept: dict[str, list[Notification]] = {}
        self._watch()

    def request(self, call: Call, method: str, params: Payload | None) -> None:
        if method == "initialize" and self._is_repeated(call):
            return
        if not self.lane.held and method not in self.watched:
            self.other.neighbour.request(call, method, params)
            return
        call.target = self
        item = Request(call, method, None if params is None else bytes(params))
        if method in self.handlers:
            self._owner.queue(self, item)
        self._put(item)

    def notify(self, method: str, params: Payload | None) -> None:
        if not self.lane.held and method not in self.watched:
            self.other.neighbour.notify(method, params)
        else:
            self._put(Notification(method, None if params is None else bytes(params)))

    def notify_run(self, run: Run) -> None:
        if not self.lane.held and run.method not in self.watched:
            self.other.neighbour.notify_run(run)
        elif self.closed:
            for each in run.params:
                self.notify(run.method, each)
        elif self.lane.put_run([Notification(run.method, bytes(each)) for each in run.params]):
            self._owner.serve(self)

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        if not self.lane.held and call.source is not self and self.observer is None:
            self.other.neighbour.respond(call, result, error)
        else:
            self._put(
                Answer(
                    call,
                    None if result is None else bytes(result),
                    None if error is None else bytes(error),
                )
            )

    def cancel(self, call: Call) -> None:
        self._owner.cancel(call)

    def backlog(self) -> int:
        """A plugin that is in no one's way passes on at once: what waits is behind it."""
        return max(self.lane.size, self.other.neighbour.backlog())

    def unread(self) -> int:
        return max(self._owner.unread_bytes(self), self.other.neighbour.unread())

    def pass_on(self, item: Item) -> None:
        """Send a message on as it came."""
        neighbour = self.other.neighbour
        if type(item) is Notification:
            neighbour.notify(item.method, item.params)
        elif type(item) is Request:
            neighbour.request(item.call, item.method, item.params)
        elif type(item) is Answer:
            neighbour.respond(item.call, item.result, item.error)

    def _is_repeated(self, call: Call) -> bool:
        """A component is initialized once in a connection; another time is refused."""
        if self.initialized:
            problem = "a component is initialized only once in a connection"
            error = encode_error(INVALID_REQUEST, "Invalid request", problem)
            self.neighbour.respond(call, None, error)
            return True
        self.initialized = True
        return False

    # -- taps --------------------------------------------------------------------------------------

    def add_tap(self, method: str, tap: Tap) -> Callable[[], None]:
        """Show `tap` every notification of this method; returns what ends that."""
        self._taps.setdefault(method, []).append(tap)
        self._watch()

        def remove() -> None:
            taps = self._taps.get(method, [])
            if tap in taps:
                taps.remove(tap)
            if not taps:
                self._taps.pop(method, None)
            self._watch()

        return remove

    def kept(self, item: Notification) -> bool:
        """Whether a notification must not go on, or not yet. Every tap gets to see it."""
        if not item.again:
            keeping = [tap(item.params) for tap in tuple(self._taps.get(item.method, ()))]
            if any(keeping):
                return True
        if not self._kept or item.method != UPDATE:
            return False
        held = self._kept.get(session_of(item.params) or "")
        if held is None:
            return False
        item.again = True
        held.append(item)
        return True

    # -- updates that wait for the answer that opens their session ---------------------------------

    def keep_updates(self, session_id: str) -> None:
        """Hold the updates of this session back from now on."""
        self._kept.setdefault(session_id, [])
        self._watch()

    def keep_own(self, session_id: str, params: bytes) -> bool:
        """Hold back an update of the plugin's own, if those of its session are."""
        held = self._kept.get(session_id)
        if held is None:
            return False
        held.append(Notification(UPDATE, params, again=True, own=True))
        return True

    @property
    def keeps_updates(self) -> bool:
        """Whether updates of any session are held back."""
        return bool(self._kept)

    def let_updates_go(self, session_id: str) -> None:
        """What was held back has its turn next."""
        if self.lane.put_back(self._kept.pop(session_id, [])):
            self._owner.serve(self)
        self._watch()

    def open(self) -> None:
        """The plugin has started."""
        self.opened = True
        self._watch()

    def close(self) -> list[Item]:
        """Nothing is handled any more; returns what was not yet."""
        kept: list[Item] = [item for items in self._kept.values() for item in items]
        self._kept.clear()
        self.closed = True
        return kept + self.lane.close()

    # ----------------------------------------------------------------------------------------------

    def _put(self, item: Item) -> None:
        if self.closed:
            self._owner.dispose(self, item)
        elif self.lane.put(item):
            self._owner.serve(self)

    def _watch(self) -> None:
        self.special = bool(self._taps or self._kept)
        if self.observer is not None:
            self.watched = _everything
        else:
            updates = (UPDATE,) if self._kept else ()
            first = () if self.opened else ("initialize",)
            self.watched = frozenset((*self.handlers, *self._taps, *updates, *first))


def two_sides(owner: Owner, handlers: Iterable[Handler]) -> tuple[PluginSide, PluginSide]:
    """The sides toward the client and toward the agent, with the handlers of each."""
    by_sender: dict[str, dict[str, Handler]] = {"client": {}, "agent": {}}
    for handler in handlers:
        for sender in handler.senders:
            by_sender[sender][handler.method] = handler
    client_side = PluginSide(owner, "client", Lane("toward the agent"), by_sender["client"])
    agent_side = PluginSide(owner, "agent", Lane("toward the client"), by_sender["agent"])
    client_side.other, agent_side.other = agent_side, client_side
    return client_side, agent_side


class _Everything:
    def __contains__(self, method: object) -> bool:
        return True


_everything: Final = _Everything()


class AgentEnd(Side):
    """What is behind an agent: a request that nobody handled is answered."""

    __slots__ = ("_back",)

    def __init__(self, back: PluginSide) -> None:
        super().__init__()
        self._back = back

    def request(self, call: Call, method: str, params: Payload | None) -> None:
        error = encode_error(METHOD_NOT_FOUND, "Method not found", method)
        self._back.neighbour.respond(call, None, error)

    def notify(self, method: str, params: Payload | None) -> None:
        pass

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        pass

    def cancel(self, call: Call) -> None:
        pass
