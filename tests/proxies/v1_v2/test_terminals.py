"""What is kept and shown of the terminals of an agent."""

from __future__ import annotations

import base64

from proxies.v1_v2.terminals import Terminals


def chunk(size, id="t"):
    data = base64.b64encode(b"x" * size).decode()
    return {"terminalId": id, "data": data}


def test_the_text_is_sent_with_the_first_output_and_then_once_for_each_kilobyte():
    terminals = Terminals()

    assert terminals.chunk(chunk(1))
    assert not terminals.chunk(chunk(1023))
    assert terminals.chunk(chunk(1))
    assert not terminals.chunk(chunk(1023))


def test_an_update_is_shown_at_once_and_its_output_replaces_the_earlier_one():
    terminals = Terminals()
    terminals.chunk(chunk(3))

    output = {"data": base64.b64encode(b"done").decode()}
    assert terminals.update({"terminalId": "t", "command": "make", "output": output})
    text = terminals.text("t")
    assert ("make" in text, "done" in text, "xxx" in text) == (True, True, False)


def test_of_much_output_the_end_is_kept_and_of_many_terminals_the_newest():
    terminals = Terminals()
    terminals.chunk(chunk(100_000, "0"))
    assert 16_000 < len(terminals.text("0")) < 17_000

    for id in range(1, 101):
        terminals.chunk(chunk(1, str(id)))
    assert terminals.text("0") == "[a terminal of the agent]"
    assert "x" in terminals.text("1")
