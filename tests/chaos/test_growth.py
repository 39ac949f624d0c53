"""Clients come and go at one `serve`: no process is left; descriptors, threads, tasks and memory
stay level."""

from __future__ import annotations

import pytest
from chaos.growth import cohorts
from chaos.measured_server import CHAIN, PLUGIN_CHAIN, open_server


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
