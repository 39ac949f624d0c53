"""Thinkwell's conductor and proxies of its dialect (`_meta`), with ours."""

import json
import shlex

import pytest


@pytest.fixture
def said(converse, peer):
    """What the agent says in a conversation without MCP servers: its conductor fails at those of
    stdio."""

    def said(chain):
        summary = converse(peer("py_plain_client", "hello,permission"), chain)
        assert (summary["exit"], len(summary["questions"])) == (0, 1)
        return summary["text"]

    return said


def test_our_proxies_run_in_its_conductor(said, conductor, component, peer):
    ours = shlex.join(conductor("proxy", component("pass_proxy", "--name", "a", "--tag")))
    theirs = shlex.join(peer("ts_thinkwell", "proxy", "b"))
    agent = shlex.join(peer("ts_agent"))
    text = said(peer("ts_thinkwell", "conductor", ours, theirs, agent))
    assert text.startswith("a>b>you said: [a]hello")


def test_its_proxies_run_in_our_conductor(said, conductor, component, peer, tmp_path):
    theirs = {"run": peer("ts_thinkwell", "proxy", "b"), "dialect": "_meta"}
    ours = {"run": component("pass_proxy", "--name", "a", "--tag")}
    file = tmp_path / "chain.yaml"
    chain = {"version": 1, "proxies": [theirs, ours], "agent": {"run": peer("ts_agent")}}
    file.write_text(json.dumps(chain))
    text = said(conductor("run", [str(file)]))
    assert text.startswith("b>a>you said: [a]hello")
