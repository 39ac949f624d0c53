"""What reading and writing typed messages costs: `python tests/benchmarks/bench_schema.py`.

Prints microseconds, the best of several runs. The line to watch is "structure + dumps" of an
`agent_message_chunk` with 100 bytes of text: it should stay under 10.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable

import msgspec

from conductor.schema import v1
from conductor.schema.base import Object
from conductor.schema.convert import dumps, structure, unstructure

CHUNK = msgspec.json.encode(
    {
        "sessionId": "sess_0123456789abcdef",
        "update": {
            "sessionUpdate": "agent_message_chunk",
            "content": {"type": "text", "text": "x" * 100},
        },
    }
)
PROMPT = msgspec.json.encode(
    {"sessionId": "s", "prompt": [{"type": "text", "text": "y" * 50, "_meta": {"a": 1}}] * 20}
)


def main() -> None:
    _measure("agent_message_chunk", CHUNK, v1.SessionNotification)
    _measure("prompt of 20 blocks", PROMPT, v1.PromptRequest)


def _measure(title: str, raw: bytes, cls: type[Object]) -> None:
    typed, value = structure(raw, cls), msgspec.json.decode(raw)
    print(f"{title}, {len(raw)} bytes")
    _report("structure, from bytes", lambda: structure(raw, cls))
    _report("structure, from a dict", lambda: structure(value, cls))
    _report("unstructure", lambda: unstructure(typed))
    _report("dumps", lambda: dumps(typed))
    _report("structure + unstructure", lambda: unstructure(structure(raw, cls)))
    _report("structure + dumps", lambda: dumps(structure(raw, cls)))
    _report("msgspec alone, untyped", lambda: msgspec.json.encode(msgspec.json.decode(raw)))


def _report(title: str, fn: Callable[[], object]) -> None:
    number = 20_000
    best = min(timeit.repeat(fn, number=number, repeat=5)) / number
    print(f"  {title:<26}{best * 1e6:8.2f} µs")


if __name__ == "__main__":
    main()
