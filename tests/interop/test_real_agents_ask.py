"""The table of what agents ask before, measured again with the real agents.

Opt-in, since it fetches packages: see `support.measure_questions`, which writes the table. The
remedies, too, do what the table promises.
"""

from __future__ import annotations

import os

import pytest
import yaml
from support.measure_questions import AGENTS, entry_of

from conductor.proxy.agent_questions import TABLE


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_asks_before_what_the_table_says(name: str) -> None:
    agent = AGENTS[name]
    if not os.environ.get(agent.variable):
        pytest.skip(f"{agent.variable} is not set: it would fetch and run {name}")
    written = {each["agent"]: each for each in yaml.safe_load(TABLE.read_text())}

    found = entry_of(agent)

    assert {**found, "date": None} == {**written[found["agent"]], "date": None}
