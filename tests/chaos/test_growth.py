"""Clients come and go at one `serve`: no process is left; descriptors, threads, tasks and memory
stay level."""

from __future__ import annotations

import pytest
from chaos.growth import CHAIN, PLUGIN_CHAIN, cohorts, open_server, under_attack


async def test_nothing_grows_with_clients_that_come_and_go():
    with open_server(PLUGIN_CHAIN) as server:
        assert await cohorts(server, warm=40, clients=60, at_once=8) == []


async def test_nothing_grows_with_agents_that_are_programs():
    with open_server(CHAIN) as server:
        assert await cohorts(server, warm=40, clients=60, at_once=4) == []


@pytest.mark.long
@pytest.mark.parametrize("chain", [PLUGIN_CHAIN, CHAIN], ids=["plugin", "program"])
async def test_nothing_grows_with_thousands_of_clients(chain):
    with open_server(chain) as server:
        assert await cohorts(server, warm=200, clients=5_000, at_once=8) == []


@pytest.mark.long
async def test_nothing_grows_under_attack():
    with open_server(PLUGIN_CHAIN) as server:
        assert await under_attack({"plugin": server}, 10, 4)
