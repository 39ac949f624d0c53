"""What `ps` shows of a chain."""

from __future__ import annotations

from types import SimpleNamespace

import attrs
import pytest
from support.raw_json import dumps

from conductor.chain.status import ChainStatus


@attrs.define
class Process:
    name: str
    kind: str = "agent"
    agent_port: object = None
    pid: int = 7
    state: str = "backing off"
    restarts: int = 2


@attrs.define
class Plugin:
    name: str
    kind: str = "plugin"
    agent_port: object = "port"


def status(components, client, answer, turns=()):
    end = SimpleNamespace(role="client", label="", sessions=[])
    gate = SimpleNamespace(params=client, answer=answer)
    return ChainStatus(None, end, components, gate, SimpleNamespace(turns=lambda: turns)).status()


def test_both_ends_have_the_names_that_they_announced():
    client = dumps({"clientInfo": {"name": "editor", "version": "1.2"}})
    agent = dumps({"info": {"name": "second", "version": 3}})

    shown = status([], client, agent, [("s1", 1.23456), (None, 2)])

    assert (shown["client"], shown["agent"]) == ("editor 1.2", "second")
    assert shown["turns"] == [
        {"session": "s1", "seconds": 1.235},
        {"session": None, "seconds": 2},
    ]


def test_a_component_in_this_process_has_no_process_id_and_runs():
    shown = status([Plugin("queue"), Process("gemini")], None, b"")

    assert shown["components"] == [
        {"name": "queue", "kind": "plugin", "pid": None, "state": "running", "restarts": 0},
        {"name": "gemini", "kind": "agent", "pid": 7, "state": "backing off", "restarts": 2},
    ]


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"agentInfo":7}', b"[" * 100_000, b"\xff"])
def test_an_agent_without_a_name_has_that_of_its_component(answer):
    assert status([Plugin("queue"), Process("gemini")], None, answer)["agent"] == "gemini"
    assert status([Plugin("queue")], None, answer)["agent"] is None
