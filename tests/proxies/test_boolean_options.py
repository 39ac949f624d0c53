from __future__ import annotations

import pytest

from conductor.testing import FakeAgent
from proxies.boolean_options import BooleanOptions

BRAVE = {"id": "brave", "name": "Brave", "type": "boolean", "currentValue": True, "_meta": {"a": 1}}
MODEL = {
    "id": "model",
    "name": "Model",
    "type": "select",
    "currentValue": "m",
    "options": [{"value": "m", "name": "M"}],
}
SELECTION = {
    "id": "brave",
    "name": "Brave",
    "type": "select",
    "currentValue": "on",
    "options": [{"value": "on", "name": "On"}, {"value": "off", "name": "Off"}],
    "_meta": {"a": 1},
}
OFF = {**SELECTION, "currentValue": "off"}
SHOWS = {"session": {"configOptions": {"boolean": {}}}}


def agent_with_options():
    """An agent that offers boolean options to clients that announce them, and only takes booleans
    for them; it repeats each change as an update."""
    agent = FakeAgent()
    brave = dict(BRAVE)

    def options():
        asked = agent.transcript.of("initialize", "request")[0].params["clientCapabilities"]
        known = (asked.get("session") or {}).get("configOptions") or {}
        return [MODEL] if known.get("boolean") is None else [brave, MODEL]

    def set_up(params):
        return {"sessionId": "s", "configOptions": options()}

    def choose(params):
        if params["configId"] == "brave":
            assert params["type"] == "boolean"
            brave["currentValue"] = params["value"]
        update = {"sessionUpdate": "config_option_update", "configOptions": options()}
        agent.update("s", update)
        return {"configOptions": options()}

    agent.handlers |= {f"session/{name}": set_up for name in ("new", "load", "resume", "fork")}
    agent.handlers["session/set_config_option"] = choose
    return agent


async def open_session(client, capabilities, method="session/new"):
    await client.initialize(capabilities=capabilities)
    params = {"cwd": "/work", "mcpServers": []}
    if method != "session/new":
        params["sessionId"] = "s"
    return (await client.request(method, params))["configOptions"]


async def choose(client, value, **more):
    params = {"sessionId": "s", "value": value, **more}
    return (await client.request("session/set_config_option", params))["configOptions"]


@pytest.mark.parametrize("name", ["new", "load", "resume", "fork"])
@pytest.mark.parametrize(
    "capabilities", [{}, {"session": None}, {"session": {"configOptions": {}}}]
)
async def test_a_boolean_option_is_a_selection_of_on_and_off(chain, name, capabilities):
    async with chain(BooleanOptions(), agent_with_options()) as client:
        options = await open_session(client, capabilities, f"session/{name}")

    assert options == [SELECTION, MODEL]


async def test_the_agent_gets_the_choice_as_a_boolean(chain):
    agent = agent_with_options()
    async with chain(BooleanOptions(), agent) as client:
        await open_session(client, {})
        assert await choose(client, "off", configId="brave") == [OFF, MODEL]
        assert await choose(client, "on", configId="brave", type="id") == [SELECTION, MODEL]
        updates = [each.params["update"] for each in client.transcript.of("session/update")]

    assert [each["configOptions"] for each in updates] == [[OFF, MODEL], [SELECTION, MODEL]]
    asked = agent.transcript.of("session/set_config_option", "request")
    assert [each.params["value"] for each in asked] == [False, True]


async def test_other_options_are_chosen_as_before(chain):
    agent = agent_with_options()
    async with chain(BooleanOptions(), agent) as client:
        await open_session(client, {})
        await choose(client, "m", configId="model")

    (asked,) = agent.transcript.of("session/set_config_option", "request")
    assert asked.params == {"sessionId": "s", "configId": "model", "value": "m"}


async def test_a_client_that_knows_boolean_options_gets_them_as_they_are(chain):
    async with chain(BooleanOptions(), agent_with_options()) as client:
        assert await open_session(client, SHOWS) == [BRAVE, MODEL]
        chosen = await choose(client, False, configId="brave", type="boolean")

    assert chosen == [{**BRAVE, "currentValue": False}, MODEL]


async def test_other_capabilities_of_the_client_stay(chain):
    agent = agent_with_options()
    capabilities = {"terminal": True, "session": {"notices": {}, "configOptions": {"x": {}}}}
    async with chain(BooleanOptions(), agent) as client:
        await open_session(client, capabilities)

    announced = agent.transcript.of("initialize", "request")[0].params["clientCapabilities"]
    assert announced == {
        "terminal": True,
        "session": {"notices": {}, "configOptions": {"x": {}, "boolean": {}}},
    }
