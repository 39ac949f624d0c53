"""Clients come and go at one `serve`: no process is left; descriptors, threads, tasks and memory
stay level. No attack succeeds."""

from __future__ import annotations

import pytest
import trio
from chaos import agent_attacks  # noqa: F401  (adds to the attacks)
from chaos.attacks import attacks_on
from chaos.clients import open_http
from chaos.growth import Crowd, cohorts, explained
from chaos.measured_server import CHAIN, CHAINS, PERMISSIONS, PLUGIN_CHAIN, open_server
from support.bypasses import cases_of, filled, make_places

from conductor.proxy.tool_names import tool_table
from proxies.permissions.rules import Rule, decide
from proxies.shared.tool_calls.call import Call


async def test_nothing_grows_with_clients_that_come_and_go():
    """There are five kinds of them, so eight clients of each."""
    with open_server(PLUGIN_CHAIN, keep=5) as server:
        assert await cohorts(server, warm=20, clients=40, at_once=8) == []


async def test_nothing_grows_with_agents_that_are_programs():
    with open_server(CHAIN, keep=5) as server:
        assert await cohorts(server, warm=20, clients=20, at_once=4) == []


@pytest.mark.long
@pytest.mark.parametrize("chain", [PLUGIN_CHAIN, CHAIN], ids=["plugin", "program"])
async def test_nothing_grows_with_thousands_of_clients(chain):
    with open_server(chain) as server:
        assert await cohorts(server, warm=200, clients=5_000, at_once=8) == []


def test_the_rules_of_the_chain_decide_as_the_corpus_says(tmp_path, monkeypatch):
    """So that an attack of the corpus that succeeds is not a mistake of the growth test."""
    places = make_places(tmp_path)
    monkeypatch.setenv("HOME", str(places["home"]))
    rules = [Rule(**rule) for rule in PERMISSIONS]
    cases = list(cases_of(PERMISSIONS))

    for agent, given, expected in cases:
        call = Call.of(
            filled(given, places),
            cwd=str(places["cwd"]),
            session="s",
            agent=agent,
            table=tool_table(agent),
            declared=["docs"],
        )
        action = decide(rules, "ask", call).action
        assert action == "deny" if expected == "deny" else not action.startswith("allow"), given
    assert len(cases) > 350
    assert len({agent for agent, *_ in cases}) >= 6


async def test_the_failure_of_a_client_is_explained_by_the_servers_log():
    with open_server(PLUGIN_CHAIN, keep=0.2) as server:
        device = server.device()
        async with device.http() as client:
            headers = await open_http(client, device.url)
            while "client disconnected" not in server.log.read_text():  # noqa: ASYNC110
                await trio.sleep(0.05)
            answer = await client.delete(device.url, headers=headers)

        assert (answer.status_code, answer.text) == (404, "Unknown Acp-Connection-Id")
        (failure,) = explained([f"POST: 404, connection {headers['acp-connection-id']}"], server)

    assert "unused client ended" in failure
    assert "client disconnected" in failure


@pytest.mark.long
@pytest.mark.parametrize("agent", CHAINS)
async def test_no_attack_succeeds(agent):
    with open_server(CHAINS[agent], keep=5) as server:
        attacks = attacks_on(agent)
        crowd = Crowd(server.device(), attacks)

        await crowd.run(len(attacks), 2)

        assert not crowd.breaches
        assert server.token not in server.log.read_text(errors="replace")
        assert sum(crowd.served.values()) > len(attacks) / 2, crowd.failed
