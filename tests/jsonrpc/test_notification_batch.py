"""A batch of notifications is handled as its lines one by one, for any input."""

from __future__ import annotations

import sys
import tracemalloc
from collections import deque

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET

from conductor.jsonrpc import notification_batch
from conductor.jsonrpc.codec import Malformed, decode
from conductor.jsonrpc.messages import Message
from conductor.jsonrpc.notification_batch import NotificationBatch, split_block
from conductor.routing.envelope import notification_affixes, unwrap

HEAD = b'{"jsonrpc":"2.0","method":"session/update","params":'
UPDATES = [
    HEAD + b'{"sessionId":"s","update":{"text":"caf\xc3\xa9 \\n \\u00e9 }}"}}}',
    HEAD + b'{"n":1e400,"n":12345678901234567890123}}',
    HEAD + b'{"a":[{"b":{}}]}}',
]
ATTACKS = [
    HEAD + b'{}},"id":7}',  # no JSON
    HEAD + b'{},"id":7}',
    HEAD + b'{},"id":{}}',
    HEAD + b'{},"id":7,"x":{}}',
    HEAD + b'{},"i\\u0064":"7","x":{}}',
    HEAD + b'{},"method":"_x","x":{}}',
    HEAD + b'{},"method":"$/cancel_request","params":{}}',
    HEAD + b'{},"params":[{}]}',
    HEAD + b'{},"params":1,"params":{}}',
    HEAD + b'{},"result":{}}',
    HEAD + b'{"a":"\xff"}}',
    HEAD + b'{"a":"\xed\xa0\x80"}}',
    HEAD + b'{"a":"\\ud83d"}}',
    HEAD + b'{"a":[1}}',
    HEAD + b'{"a":{"b":1}}',
    HEAD + b'{"a":"x',
    HEAD + b"{}} ",
    HEAD + b"{}}\r",
    HEAD + b"{} }",
    HEAD + b'{},"method":"session/update"}',
    HEAD + b'{},"method":"_x"}',
    HEAD + b'{"a":1},"params":{"a":2}}',
    HEAD + b'{"a":1},"params":{"a":2} }',
    HEAD + b"{}}{}",
    b'{"jsonrpc":"2.0","method":"session\\/update","params":{}}',
    b'{"jsonrpc":"2.0","method":"session/update"}',
    b'{"params":{"abcdefm":1},"jsonrpc":"2.0"}',
    b'{"params":{"abcdefm":1},"method":"session/update"}',
    HEAD + b'{}, "jsonrpc":"2.0"}',
    b'{"jsonrpc":"2.0","method":"session/update","params":[]}',
    b'{"jsonrpc":"2.0","method" : "session/update","params":{"b":{}}}',
    b'{"jsonrpc":"2.0","metho":1,"method":"session/update","params":{}}',
    b'{"jsonrpc":"2.0","params":{},"method":"session/update"}',
    b'{"jsonrpc": "2.0", "method": "session/update", "params": {"a": {}}}',
    HEAD + b"{}} " + HEAD + b'{"n":2}}',
    HEAD + b"{}}" + HEAD + b'{"n":2}}',
    HEAD + b'{"a":[{}}},' + HEAD + b"{}}]}}",
    b'"n":1}}',
    b'{"n":1}}',
    b"{}}",
    b"",
    b" ",
    b"]}}",
    b'{"jsonrpc":"2.0","id":1,"result":{"a":{}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"session/request_permission","params":{"a":{}}}',
    b'{"jsonrpc":"2.0","method":"_x","params":{"a":{}}}',
    b'{"method":"session/update","jsonrpc":"2.0","params":{"a":{}}}',
    b"[" + HEAD + b"{}}]",
    b"no JSON",
]


def one_by_one(block: bytes) -> list[Message | Malformed]:
    """The messages of all lines that are not blank."""
    return [decode(line) for line in block.split(b"\n")[:-1] if line.strip()]


def taken_apart(block: bytes) -> list[Message | Malformed]:
    """The result of `split_block`, each member of a run as a single message."""
    found: list[Message | Malformed] = []
    for part in split_block(block):
        if isinstance(part, NotificationBatch):
            head, tail = notification_affixes(None, part.method)
            wrapped_head, wrapped_tail = notification_affixes("proxy", part.method)
            lines = part.as_lines(head, tail).split(b"\n")[:-1]
            wrapped = part.as_lines(wrapped_head, wrapped_tail).split(b"\n")[:-1]
            params = [bytes(each) for each in part.params]
            assert len(params) > 1
            messages = [decode(line) for line in lines]
            assert [bytes(each.params) for each in messages] == params
            inner = [unwrap(decode(line).params) for line in wrapped]
            assert [(each.method, bytes(each.params)) for each in inner] == [
                (part.method, each) for each in params
            ]
            assert {(type(each), each.method, each.id) for each in messages} == {
                (Message, part.method, UNSET)
            }
            found += messages
        elif part.strip():
            assert part.endswith(b"\n")
            found.append(decode(part[:-1]))
    return found


lines = st.sampled_from(UPDATES * 8 + ATTACKS)


@given(st.lists(lines, max_size=12))
@example([UPDATES[0], *ATTACKS])
@example([HEAD + b'{"a":[1', b"2]}}", UPDATES[0]])
def test_a_run_has_the_same_messages_as_its_single_lines(lines):
    block = b"".join(line + b"\n" for line in lines)

    assert taken_apart(block) == one_by_one(block)


@pytest.mark.parametrize("first", ATTACKS)
def test_two_hidden_messages_do_not_cancel_out(first):
    for second in ATTACKS:
        lines = [UPDATES[0], first, second, UPDATES[1], UPDATES[2]]
        block = b"".join(line + b"\n" for line in lines)

        assert taken_apart(block) == one_by_one(block), second


def test_updates_between_other_messages_are_runs():
    answer = b'{"jsonrpc":"2.0","id":1,"result":{"a":{}}}\n'
    updates = b"".join(line + b"\n" for line in UPDATES)

    parts = list(split_block(updates + answer + updates + updates + answer))

    kinds = [len(part.params) if isinstance(part, NotificationBatch) else part for part in parts]
    assert kinds == [3, answer, 6, answer]


def test_small_params_in_a_long_line_do_not_keep_it_in_memory():
    line = b'{"jsonrpc":"2.0","method":"_x","params":{}%b}\n'
    tracemalloc.start()

    (run,) = split_block(line % b"" + line % (b" " * 500_000))

    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [*map(bytes, run.params)] == [b"{}", b"{}"]
    assert held < 100_000


@pytest.mark.parametrize(("junk", "held"), [(b" " * 500_000, 0), (b" ", 1)])
def test_small_params_in_a_long_run_do_not_keep_it_in_memory(junk, held):
    params = b'{"a":"%b"}' % (b"x" * 50)
    block = HEAD + params + junk + b"}\n" + (HEAD + params + b"}\n") * 100
    (run,) = split_block(block)
    before = sys.getrefcount(block)

    assert list(map(bytes, run.params)) == [params] * 101

    assert sys.getrefcount(block) - before == 101 * held


def test_an_invalid_line_is_decoded_once():
    looked = []

    class Counted(list):
        def __iter__(self):
            for line in super().__iter__():
                looked.append(line)
                yield line

    lines = Counted([b"1\n"] * 100)

    deque(notification_batch._split_line_by_line(lines), 0)

    assert len(looked) <= 100


def test_blank_lines_between_others_are_left_out():
    assert list(split_block(b"\n\r\n1\n \n")) == [b"1\n"]
