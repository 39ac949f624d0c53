"""What routing costs without any process or pipe: `python -m tests.benchmarks.hot_path`.

The connections and links of a chain are put together in memory and fed with chunks, as by the I/O
loop; their output is discarded. Prints microseconds per message, the best of several rounds;
`--profile NAME` prints a cProfile. Best for comparing two versions of the code: it repeats to
within a few percent, a chain of processes does not.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable, Iterator, Sequence

from conductor.jsonrpc.connection import Connection
from conductor.routing.link import Link
from conductor.routing.port import connect_ports
from conductor.transport.io_loop import Flusher, ReadGate

from .agent import filler
from .proxy import Proxy

CHUNK = 65536
SECONDS = 1.0
Feed = Callable[[], int]
"""Routes some messages, and returns how many."""


class Pipe:
    """A transport that takes everything, and forgets it unless it is asked to keep it."""

    def __init__(self) -> None:
        self.kept: list[bytes] | None = None

    async def receive(self) -> bytes:
        raise NotImplementedError

    def write_now(self, pieces: Sequence[bytes | memoryview]) -> int:
        if self.kept is not None:
            self.kept.append(b"".join(pieces))
        return sum(map(len, pieces))

    async def wait_writable(self) -> None:
        raise NotImplementedError

    def close_writing(self) -> None:
        pass

    def close(self) -> None:
        pass


class Chain:
    """A client, some proxies and an agent, seen from inside the conductor."""

    def __init__(self, proxies: int = 0) -> None:
        self._due: list[Callable[[], object]] = []
        self.flush_soon = self._due.append
        self.gate = ReadGate(Flusher(), self._backlog)
        client = Link("client", "client", self._report)
        middle = [Link(f"proxy-{number}", "proxy", self._report) for number in range(proxies)]
        agent = Link("agent", "agent", self._report)
        self.links = [client, *middle, agent]
        self.proxies = [Proxy() for _ in middle]
        for proxy in self.proxies:
            proxy.speak("proxy")
        for link in self.links:
            link.connect(Connection(Pipe(), link, self))
        for here, there in zip(self.links, self.links[1:], strict=False):
            connect_ports(here.enveloped or here.plain, there.plain)

    def feed(self, at: int, chunk: bytes) -> None:
        """One iteration of the I/O loop."""
        connection = self.links[at].connection
        assert connection is not None
        connection.feed_partial(chunk)
        while self._due:
            self._due.pop()()
        if not self.gate.open:
            raise AssertionError("something waits to be written")

    def written(self, at: int, feed: Callable[[], None]) -> list[bytes]:
        """The lines that a component gets."""
        pipe = self.links[at].connection.transport  # type: ignore[union-attr]
        assert isinstance(pipe, Pipe)
        pipe.kept = []
        feed()
        kept, pipe.kept = b"".join(pipe.kept), None
        return kept.splitlines(keepends=True)

    def _backlog(self) -> int:
        return max(link.connection.write_buffer.size for link in self.links if link.connection)

    def _report(self, event: str, detail: str) -> None:
        raise AssertionError(f"{event}: {detail}")


def update(size: int, index: int = 0, session: str = "session-1") -> bytes:
    content = b'{"type":"text","text":"%08d%b"}' % (index, filler(size))
    return (
        b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"%b","update":'
        b'{"sessionUpdate":"agent_message_chunk","content":%b}}}\n' % (session.encode(), content)
    )


def chunks(data: bytes) -> list[bytes]:
    return [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]


def stream(size: int, at_once: int, proxies: int = 0) -> Feed:
    """An agent streams updates, in pieces of 64 KiB, or so many in one."""
    count = max(1, min(1000, (1 << 21) // size))
    lines = [update(size, index) for index in range(count)]
    pieces = chunks(b"".join(lines)) if not at_once else _grouped(lines, at_once)
    chain = Chain(proxies)
    legs = [(proxies + 1, pieces)]
    for at in range(proxies, 0, -1):  # each proxy writes what it got in as many pieces
        passed: list[bytes] = []
        for piece in legs[-1][1]:
            got = chain.written(at, lambda piece=piece: chain.feed(legs[-1][0], piece))  # type: ignore[misc]
            passed.append(b"".join(map(chain.proxies[at - 1].take, got)))
        legs.append((at, [part for piece in passed for part in chunks(piece)]))

    def run() -> int:
        for at, pieces in legs:
            for piece in pieces:
                chain.feed(at, piece)
        return count

    return run


def round_trip(size: int = 10, proxies: int = 0) -> Feed:
    """A prompt and its answer; two messages."""
    prompt = (
        b'"session/prompt","params":{"sessionId":"session-1",'
        b'"prompt":[{"type":"text","text":"%b"}]}' % filler(size + 8)
    )
    hops = [_PLAIN % prompt, *[_WRAPPED % prompt] * proxies]
    return _there_and_back(Chain(proxies), hops, b'{"stopReason":"end_turn"}', up=False)


def question(proxies: int = 0) -> Feed:
    """A permission request of the agent's, and its answer."""
    asked = _PLAIN % (
        b'"session/request_permission","params":{"sessionId":"session-1",'
        b'"toolCall":{"toolCallId":"call-1"},"options":[]}'
    )
    result = b'{"outcome":{"outcome":"selected","optionId":"yes"}}'
    return _there_and_back(Chain(proxies), [asked] * (proxies + 1), result, up=True)


_PLAIN = b'"method":%b}\n'
_WRAPPED = b'"method":"proxy/successor","params":{"method":%b}}\n'


def _there_and_back(chain: Chain, hops: Sequence[bytes], result: bytes, *, up: bool) -> Feed:
    """A request, as each component on its way writes it, then the responses. Every component counts
    its requests from one, so the ids are equal on all hops."""
    last = len(chain.links) - 1
    way = range(last, 0, -1) if up else range(last)
    back = [at + (-1 if up else 1) for at in reversed(way)]
    number = 0

    def run() -> int:
        nonlocal number
        number += 1
        for at, line in zip(way, hops, strict=True):
            for piece in chunks(b'{"jsonrpc":"2.0","id":%d,%b' % (number, line)):
                chain.feed(at, piece)
        for at in back:
            chain.feed(at, b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (number, result))
        return 2

    return run


def mixed(at_once: int = 20) -> Feed:
    """Sessions with a prompt, ten updates and an answer each, all at the same time."""
    chain = Chain()
    agent = chain.links[1].connection
    assert agent is not None
    prompt = (
        b'{"jsonrpc":"2.0","id":%d,"method":"session/prompt","params":{"sessionId":"session-%d",'
        b'"prompt":[{"type":"text","text":"stream 10 200"}]}}\n'
    )
    replies = [b"".join(update(200, i, f"session-{s}") for i in range(10)) for s in range(at_once)]
    answer = b'%b{"jsonrpc":"2.0","id":%d,"result":{"stopReason":"end_turn"}}\n'

    def run() -> int:
        first = agent._last_id + 1
        chain.feed(0, b"".join(prompt % (first + s, s) for s in range(at_once)))
        for piece in chunks(b"".join(answer % (replies[s], first + s) for s in range(at_once))):
            chain.feed(1, piece)
        return 12 * at_once

    return run


def _grouped(lines: Sequence[bytes], at_once: int) -> list[bytes]:
    return [b"".join(lines[at : at + at_once]) for at in range(0, len(lines), at_once)]


CASES: dict[str, Callable[[], Feed]] = {
    "round trip": round_trip,
    "question": question,
    "100 B, one per read": lambda: stream(100, 1),
    "100 B, two per read": lambda: stream(100, 2),
    "100 B": lambda: stream(100, 0),
    "4 KiB": lambda: stream(4096, 0),
    "1 MiB": lambda: stream(1 << 20, 0),
    "1 MiB prompt": lambda: round_trip(1 << 20),
    "20 sessions": mixed,
    "round trip, 1 proxy": lambda: round_trip(proxies=1),
    "100 B, one per read, 1 proxy": lambda: stream(100, 1, 1),
    "100 B, 1 proxy": lambda: stream(100, 0, 1),
    "4 KiB, 1 proxy": lambda: stream(4096, 0, 1),
    "1 MiB, 1 proxy": lambda: stream(1 << 20, 0, 1),
    "100 B, 3 proxies": lambda: stream(100, 0, 3),
}


def rounds(feed: Feed, seconds: float) -> Iterator[float]:
    """Seconds per message."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        messages, begin = 0, time.thread_time_ns()
        while (spent := time.thread_time_ns() - begin) < 20_000_000:
            messages += feed()
        yield spent / 1e9 / messages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    arguments = parser.parse_args()
    for name in arguments.names or CASES:
        feed = CASES[name]()
        feed()
        print(f"{name:30} {min(rounds(feed, arguments.seconds)) * 1e6:10.3f} µs", flush=True)
        if arguments.profile:
            with cProfile.Profile() as profile:
                sum(1 for _ in rounds(feed, arguments.seconds))
            pstats.Stats(profile).sort_stats("tottime").print_stats(20)


if __name__ == "__main__":
    main()
