import json
import os
import stat
from datetime import timedelta

import pytest
import trio

from conductor.proxy import RequestError
from conductor.testing import FakeAgent
from proxies.remember import Remember, SettingsFile

MODES = [{"id": each, "name": each} for each in ("ask", "code", "yolo")]


class Settable:
    """Handlers of an agent with a mode, a model and an option in each session."""

    def __init__(self, modes=MODES):
        self.modes, self.mode, self.model, self.sessions = modes, "ask", "s", 0
        self.asked = []

    def agent(self):
        return FakeAgent(
            handlers={
                "session/new": self.new,
                "session/load": self.state,
                "session/resume": self.state,
                "session/set_mode": self.set_mode,
                "session/set_config_option": self.set_option,
            }
        )

    def new(self, params):
        self.sessions += 1
        self.mode, self.model = "ask", "s"
        return {"sessionId": f"{self.sessions}", **self.state(params), "_meta": {"kept": 1}}

    def state(self, params):
        modes = {"currentModeId": self.mode, "availableModes": self.modes}
        return {"modes": modes, "configOptions": self.options()}

    def options(self):
        values = [{"value": each, "name": each} for each in ("s", "l")]
        select = {"type": "select", "currentValue": self.model, "options": values}
        return [{"id": "model", "name": "Model", **select}]

    def set_mode(self, params):
        self.asked.append(params["modeId"])
        if params["modeId"] not in [each["id"] for each in self.modes]:
            raise RequestError(-32602, "No such mode")
        self.mode = params["modeId"]
        return {}

    def set_option(self, params):
        self.asked.append(params["value"])
        self.model = params["value"]
        return {"configOptions": self.options()}


def values(result):
    return result["modes"]["currentModeId"], result["configOptions"][0]["currentValue"]


async def set_mode(client, session, mode):
    await client.request("session/set_mode", {"sessionId": session, "modeId": mode})


async def set_model(client, session, value):
    params = {"sessionId": session, "configId": "model", "value": value}
    await client.request("session/set_config_option", params)


async def new(client, cwd="/a"):
    return await client.request("session/new", {"cwd": cwd, "mcpServers": []})


async def chosen(chain, proxy, mode="code"):
    """In a chain of its own, select a mode and a model in the directory /a."""
    async with chain(proxy, Settable().agent()) as client:
        await client.initialize()
        await new(client)
        await set_mode(client, "1", mode)
        await set_model(client, "1", "l")


async def test_a_new_session_has_what_was_last_set_and_its_response_says_so(chain, tmp_path):
    await chosen(chain, Remember(directory=tmp_path))
    agent = Settable()
    async with chain(Remember(directory=tmp_path), agent.agent()) as client:
        await client.initialize()
        result = await new(client)

    assert (result["sessionId"], result["_meta"]) == ("1", {"kept": 1})
    assert values(result) == ("code", "l") == (agent.mode, agent.model)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("method", ["session/new", "session/resume"])
async def test_options_are_set_with_the_session_if_the_agent_takes_them_so(
    chain, tmp_path, version, announced, method
):
    values = [{"value": each, "name": each} for each in ("s", "l")]
    members = {"name": "Model", "type": "select", "options": values}
    id = "id" if version == 1 else "configId"

    def state(params):
        given = {each["configId"]: each["value"] for each in params.get("configOptions", ())}
        chosen = params.get("value") or given.get("model", "s")
        return {
            "sessionId": "1",
            "configOptions": [{id: "model", "currentValue": chosen, **members}],
        }

    name = "sessionCapabilities" if version == 1 else "session"
    agent = FakeAgent(capabilities={name: {"options": {}} if announced else {}})
    setting = "session/set_config_option"
    agent.handlers |= dict.fromkeys(("session/new", "session/resume", setting), state)
    params = {"cwd": "/a", "mcpServers": []}
    async with chain(Remember(directory=tmp_path), agent) as client:
        await client.initialize(version=version)
        await client.request("session/new", params)
        chosen = {"sessionId": "1", "configId": "model", "value": "l"}
        await client.request(setting, chosen | ({} if version == 1 else {"type": "id"}))
        result = await client.request(method, {**params, "sessionId": "1"})

    assert result["configOptions"][0]["currentValue"] == "l"
    asked = agent.transcript.of(method, "request")[-1]
    type = {} if version == 1 else {"type": "id"}
    initial = [{"configId": "model", "value": "l", **type}]
    assert asked.params.get("configOptions") == (initial if announced else None)
    assert len(agent.transcript.of(setting, "request")) == (1 if announced else 2)


def all_kinds(effort, fast):
    """A set-up with models, a selection in groups, and an option that is on or off."""
    models = {"currentModelId": "s", "availableModels": [{"modelId": "s"}, {"modelId": "l"}]}
    groups = [{"value": "low"}, {"group": "g", "options": [{"value": each} for each in effort]}]
    select = {"id": "effort", "type": "select", "currentValue": "low", "options": groups}
    options = [
        select,
        *([{"id": "fast", "type": "boolean", "currentValue": False}] if fast else []),
    ]
    return {"sessionId": "1", "models": models, "configOptions": options}


@pytest.mark.parametrize(
    ("effort", "fast", "again"),
    [(["high"], True, ["l", "high", True]), (["middle"], False, ["l"])],
)
async def test_models_and_options_of_every_form_are_set_again_if_they_are_offered(
    chain, tmp_path, effort, fast, again
):
    asked = []

    def take(params):
        asked.append(params.get("modelId", params.get("value")))
        return {}

    changes = [
        ("session/set_model", {"modelId": "l"}),
        ("session/set_config_option", {"configId": "effort", "value": "high"}),
        ("session/set_config_option", {"configId": "fast", "type": "boolean", "value": True}),
    ]
    for set_up in (all_kinds(["high"], True), all_kinds(effort, fast)):
        handlers = {"session/new": lambda params, set_up=set_up: set_up}
        handlers |= dict.fromkeys([method for method, _ in changes], take)
        async with chain(Remember(directory=tmp_path), FakeAgent(handlers=handlers)) as client:
            await client.initialize()
            await new(client)
            opened = len(asked)
            for method, params in changes:
                await client.request(method, {"sessionId": "1", **params})

    assert asked[3:opened] == again


@pytest.mark.parametrize(("scope", "found"), [("project", ("ask", "s")), ("user", ("code", "l"))])
async def test_the_scope_is_exactly_the_directory_or_the_user(chain, tmp_path, scope, found):
    await chosen(chain, Remember(scope, directory=tmp_path))
    async with chain(Remember(scope, directory=tmp_path), Settable().agent()) as client:
        await client.initialize()
        assert values(await new(client, "/b")) == found
        assert values(await new(client, "/a/below")) == found
        assert values(await new(client, "/a/./")) == ("code", "l")


class TwoForms(Settable):
    """An agent whose mode is also an option, as Claude's. It tells what has changed."""

    def options(self):
        values = [{"value": each["id"], "name": each["id"]} for each in self.modes]
        select = {"type": "select", "currentValue": self.mode, "options": values}
        return [*super().options(), {"id": "m", "name": "Mode", "category": "mode", **select}]

    def set_option(self, params):
        if params["configId"] == "model":
            return super().set_option(params)
        self.set_mode({"modeId": params["value"]})
        return {"configOptions": self.options()}


async def set_both(client, session, first, mode, option):
    requests = {
        "mode": ("session/set_mode", {"modeId": mode}),
        "option": ("session/set_config_option", {"configId": "m", "value": option}),
    }
    for each in (first, *requests.keys() - {first}):
        method, params = requests[each]
        await client.request(method, {"sessionId": session, **params})


@pytest.mark.parametrize(("first", "last"), [("mode", "yolo"), ("option", "code")])
async def test_a_mode_in_two_forms_is_one_setting(chain, tmp_path, first, last):
    async with chain(Remember(directory=tmp_path), TwoForms().agent()) as client:
        await client.initialize()
        await new(client)
        await set_both(client, "1", first, "code", "yolo")

    agent = TwoForms()
    async with chain(Remember(directory=tmp_path), agent.agent()) as client:
        await client.initialize()
        shown = await new(client)

    assert agent.asked == [last]
    assert (shown["modes"]["currentModeId"], shown["configOptions"][1]["currentValue"]) == (
        last,
        last,
    )


async def test_the_last_that_the_client_hears_of_a_new_session_is_its_real_state(chain, tmp_path):
    await chosen(chain, Remember(directory=tmp_path))
    settable = Settable()
    agent = settable.agent()

    def set_mode(params):
        result = settable.set_mode(params)
        changed = {"sessionUpdate": "config_option_update", "configOptions": settable.options()}
        agent.update("1", changed)  # with the model that is set only later
        return result

    agent.handlers["session/set_mode"] = set_mode
    async with chain(Remember(directory=tmp_path), agent) as client:
        await client.initialize()
        assert values(await new(client)) == ("code", "l")
        await client.transcript.wait("session/update config_option_update", count=2)
        before, mode, options = client.transcript.updates()

    assert before["configOptions"][0]["currentValue"] == "s"
    assert (mode["currentModeId"], options["configOptions"][0]["currentValue"]) == ("code", "l")


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_what_the_agent_tells_of_an_earlier_session_is_part_of_its_response(
    chain, tmp_path, method
):
    await chosen(chain, Remember(directory=tmp_path))
    settable = Settable()
    agent = settable.agent()

    def set_mode(params):
        changed = {"sessionUpdate": "config_option_update", "configOptions": settable.options()}
        agent.update("1", changed)
        return settable.set_mode(params)

    agent.handlers["session/set_mode"] = set_mode
    async with chain(Remember(directory=tmp_path), agent) as client:
        await client.initialize()
        params = {"sessionId": "1", "cwd": "/a", "mcpServers": []}
        assert values(await client.request(method, params)) == ("code", "l")
        await client.prompt("1", "hi")
        assert client.transcript.updates() == []


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_a_session_that_is_opened_again_has_what_was_set_in_it(chain, tmp_path, method):
    async with chain(Remember(directory=tmp_path), Settable().agent()) as client:
        await client.initialize()
        for session, mode in [("1", "code"), ("2", "yolo")]:
            await new(client)
            await set_mode(client, session, mode)
    async with chain(Remember(directory=tmp_path), Settable().agent()) as client:
        await client.initialize()
        found = {}
        for session in ("1", "2", "3"):
            params = {"sessionId": session, "cwd": "/a", "mcpServers": []}
            found[session] = values(await client.request(method, params))[0]

    assert found == {"1": "code", "2": "yolo", "3": "yolo"}  # the agent itself keeps the last


@pytest.mark.parametrize(("method", "answer"), [("session/load", None), ("session/resume", {})])
async def test_an_agent_that_does_not_say_what_it_offers_is_asked_to_set_it(
    chain, tmp_path, method, answer
):
    await chosen(chain, Remember(directory=tmp_path))
    settable = Settable()
    agent = settable.agent()
    agent.handlers[method] = lambda params: answer
    async with chain(Remember(directory=tmp_path), agent) as client:
        await client.initialize()
        params = {"sessionId": "1", "cwd": "/a", "mcpServers": []}
        result = await client.request(method, params)
        assert (settable.mode, settable.model) == ("code", "l")
        with trio.fail_after(20):
            told = await client.transcript.wait("session/update current_mode_update")

    assert told.params["update"]["currentModeId"] == "code"
    assert list(result) == ["configOptions"]


async def test_a_refused_setting_is_not_remembered_and_a_refusal_leaves_the_others(chain, tmp_path):
    async with chain(Remember(directory=tmp_path), Settable().agent()) as client:
        await client.initialize()
        await new(client)
        with pytest.raises(RequestError, match="No such mode"):
            await set_mode(client, "1", "gone")
    assert not os.listdir(tmp_path)

    await chosen(chain, Remember(directory=tmp_path))
    agent = Settable().agent()

    def refuse(params):
        raise RequestError(-32602, "Not now")

    agent.handlers["session/set_mode"] = refuse
    async with chain(Remember(directory=tmp_path), agent) as client:
        await client.initialize()
        assert values(await new(client)) == ("ask", "l")


async def test_an_agent_that_does_not_answer_does_not_hold_the_session_back(
    chain, tmp_path, virtual_clock
):
    await chosen(chain, Remember(directory=tmp_path))
    agent = Settable().agent()

    async def hang(params):
        await trio.sleep_forever()

    agent.handlers["session/set_mode"] = hang
    proxy = Remember(directory=tmp_path, timeout=timedelta(seconds=1))
    async with chain(proxy, agent) as client:
        await client.initialize()
        assert values(await new(client)) == ("ask", "s")


async def test_a_file_that_cannot_be_used_fails_no_request(chain, tmp_path):
    (tmp_path / "file").touch()
    async with chain(Remember(directory=tmp_path / "file"), Settable().agent()) as client:
        await client.initialize()
        await new(client)
        await set_mode(client, "1", "code")
        assert values(await new(client)) == ("ask", "s")


async def test_version_2_has_options_alone(chain, tmp_path):
    asked = []

    def options(params):
        asked.append(params.get("type"))
        values = [{"value": each, "name": each} for each in ("ask", "code")]
        current = params.get("value", "ask")
        mode = {"configId": "mode", "type": "select", "currentValue": current, "options": values}
        return {"configOptions": [mode]}

    def agent():
        new = lambda params: {"sessionId": "s", **options({})}  # noqa: E731
        return FakeAgent(handlers={"session/new": new, "session/set_config_option": options})

    found = []
    for _ in range(2):
        async with chain(Remember(directory=tmp_path), agent()) as client:
            await client.initialize(version=2)
            found.append((await new(client))["configOptions"][0]["currentValue"])
            params = {"sessionId": "s", "configId": "mode", "type": "id", "value": "code"}
            await client.request("session/set_config_option", params)

    assert found == ["ask", "code"]
    assert asked == [None, "id", None, "id", "id"]


async def test_a_mode_is_set_as_an_option_where_the_agent_offers_no_modes(chain, tmp_path):
    """opencode takes both requests, and offers the option alone; so does each in version 2."""
    taken = []

    def options(value="ask"):
        values = [{"value": each, "name": each} for each in ("ask", "code")]
        mode = {"id": "m", "category": "mode", "type": "select", "options": values}
        return {"configOptions": [{**mode, "currentValue": value}]}

    def take(params):
        taken.append(params.get("modeId", params.get("value")))
        return options(params["value"]) if "value" in params else {}

    handlers = {
        "session/new": lambda params: {"sessionId": "s", **options()},
        "session/set_mode": take,
        "session/set_config_option": take,
    }
    found = []
    for _ in range(2):
        agent = FakeAgent(handlers=handlers)
        async with chain(Remember(directory=tmp_path), agent) as client:
            await client.initialize()
            found.append((await new(client))["configOptions"][0]["currentValue"])
            await client.request("session/set_mode", {"sessionId": "s", "modeId": "code"})
            told = [each["sessionUpdate"] for each in client.transcript.updates()]

    assert found == ["ask", "code"]
    assert taken == ["code"] * 3
    assert told == ["config_option_update"]


# -- the file --------------------------------------------------------------------------------------

MODE = ("mode", "", "code")


@pytest.fixture
def file(tmp_path):
    return SettingsFile(tmp_path / "made" / "a.json")


def test_the_last_value_of_each_setting_is_kept_by_session_and_for_new_ones(file):
    for session, setting in [("1", MODE), ("2", ("option", "a", True)), ("2", ("mode", "", "x"))]:
        file.add(session, setting)

    assert file.latest() == [("option", "a", True), ("mode", "", "x")]
    assert file.of_session("1") == [MODE]


def test_only_its_owner_can_read_it(file):
    file.add("s", MODE)

    modes = [stat.S_IMODE(os.stat(each).st_mode) for each in (file.path.parent, file.path)]
    assert [oct(each) for each in modes] == ["0o700", "0o600"]
    assert sorted(os.listdir(file.path.parent)) == ["a.json", "a.lock"]


def test_its_size_is_bounded(file, monkeypatch):
    monkeypatch.setattr("proxies.remember._MAX_SETTINGS", 2)
    monkeypatch.setattr("proxies.remember._MAX_SESSIONS", 3)
    file.add("s", ("option", "a", "x" * 1001))
    assert not file.path.exists()
    for number in range(5):
        file.add(f"s{number}", ("option", str(number), True))

    content = json.loads(file.path.read_text())
    assert (len(content["latest"]), len(content["sessions"])) == (2, 3)
    assert file.of_session("s1") == []
    assert file.of_session("s4") == [("option", "4", True)]


@pytest.mark.parametrize("content", ["{", "[" * 100_000, "\0"])
def test_a_damaged_file_is_an_error_and_is_replaced_by_the_next_setting(file, content):
    file.path.parent.mkdir()
    file.path.write_text(content)
    with pytest.raises(ValueError, match="is not valid JSON"):
        file.latest()

    file.add("s", MODE)

    assert file.latest() == [MODE]


def test_a_file_that_another_user_has_put_there_sets_nothing(file, monkeypatch):
    """In a directory in which every user can write; a mode may be one that asks nothing."""
    file.add("s", MODE)
    if os.geteuid() == 0:  # what root has written is read
        os.chown(file.path, 4321, -1)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    with pytest.raises(PermissionError, match="belongs to another user"):
        file.latest()
    with pytest.raises(PermissionError, match="belongs to another user"):
        file.add("s", MODE)
