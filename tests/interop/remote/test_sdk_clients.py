"""The SDKs' HTTP and WebSocket clients at `acp-conductor serve` see what they see at the agent."""

from __future__ import annotations

import pytest

from .programs import served
from .summaries import remote

PYTHON = (["py_client", "--nothing-big"], "ts_agent")
TYPESCRIPT = (["ts_client"], "py_agent")
"""Each client by HTTP and by WebSocket, one of them over TLS."""


@pytest.mark.parametrize(
    ("scheme", "client", "agent"),
    [("ws", *PYTHON), ("http", *TYPESCRIPT)],
    ids=["ws-py_client", "http-ts_client"],
)
def test_a_served_agent_behaves_as_the_agent_alone(
    alone, check_same, converse, peer, tmp_path, scheme, client, agent
):
    with served(tmp_path, {"run": peer(agent)}) as address:
        summary = converse(peer(*client), [f"{scheme}://{address}/acp"])

    check_same(remote(summary), remote(alone(peer(*client), peer(agent))))


@pytest.mark.parametrize(
    ("scheme", "client", "agent"),
    [("https", *PYTHON), ("wss", *TYPESCRIPT)],
    ids=["https-py_client", "wss-ts_client"],
)
def test_a_served_agent_behaves_as_the_agent_alone_over_tls(
    alone, certificate, check_same, converse, monkeypatch, peer, tmp_path, scheme, client, agent
):
    """The Python SDK speaks HTTP/2 then, by `https`."""
    with served(tmp_path, {"run": peer(agent)}, *certificate.options) as address:
        monkeypatch.setenv("SSL_CERT_FILE", certificate.authority)
        monkeypatch.setenv("NODE_EXTRA_CA_CERTS", certificate.authority)
        summary = converse(peer(*client), [f"{scheme}://{address}/acp"])

    hasty = scheme == "https"
    expected = alone(peer(*client), peer(agent))
    check_same(remote(summary, hasty=hasty), remote(expected, hasty=hasty))
