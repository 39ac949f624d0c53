from __future__ import annotations

import json
from pathlib import Path

import pytest

from conductor.schema import METHODS_BY_VERSION
from conductor.testing import FakeAgent
from proxies.path_map import PARAMS, RESULTS, UPDATES, PathMap, PathMapping

PATHS = {"/home/me/app": "/workspace", "/home/me/app/lib": "/lib"}
SCHEMAS = Path(__file__).parents[2] / "conductor" / "schema" / "data"


async def sent(chain, method, params, *, version=1):
    """The params that the agent gets."""
    agent = FakeAgent(handlers={method: lambda params: {"sessionId": "s"}})
    async with chain(PathMap(PATHS), agent, bridged=False) as client:
        await client.initialize(version=version)
        await client.request(method, params)
    return agent.transcript.of(method, "request")[0].params


async def update(chain, update, *, version=1):
    """The update that the client gets."""
    agent = FakeAgent(turns=[[update]])
    async with chain(PathMap(PATHS), agent, bridged=False) as client:
        await client.initialize(version=version)
        await client.prompt_turn(await client.new_session("/home/me/app"), "hi")
        return client.transcript.updates()[0 if version == 1 else 1]


async def asked(chain, method, params, answer):
    """The params of the agent's request that the client gets."""

    async def ask(session):
        await agent.endpoint.request(method, {"sessionId": session, **params})

    agent = FakeAgent(turns=[[ask]])
    async with chain(PathMap(PATHS), agent, bridged=False) as client:
        client.handlers[method] = lambda params: answer
        await client.initialize()
        await client.prompt(await client.new_session("/home/me/app"), "hi")
        return client.transcript.of(method, "request")[0].params


async def test_a_directory_is_mapped_through_a_link(chain, tmp_path):
    (tmp_path / "real" / "app").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    real, link = f"{tmp_path}/real", f"{tmp_path}/link"
    for outside, cwd in ((real, link), (link, real), (link, link)):
        agent = FakeAgent()
        async with chain(PathMap({outside: "/in"}), agent, bridged=False) as client:
            await client.initialize()
            await client.new_session(f"{cwd}/app")
        assert agent.transcript.of("session/new", "request")[0].params["cwd"] == "/in/app"


@pytest.mark.parametrize("method", ["new", "load", "resume", "fork"])
async def test_the_directories_of_a_session_are_those_inside(chain, method):
    server = {"name": "s", "command": "/home/me/app/bin/mcp", "args": ["/home/me/app"], "env": []}
    params = {
        "cwd": "/home/me/app",
        "additionalDirectories": ["/home/me/app/lib/x", "/home/me/other", "/home/me/app/library"],
        "mcpServers": [server],
        "sessionId": "s",
    }

    found = await sent(chain, f"session/{method}", params)

    assert found["cwd"] == "/workspace"
    assert found["additionalDirectories"] == ["/lib/x", "/home/me/other", "/workspace/library"]
    # What an argument means is known to the server alone.
    assert found["mcpServers"] == [{**server, "command": "/workspace/bin/mcp"}]


async def test_resources_of_a_prompt_are_mapped_and_texts_are_not(chain):
    blocks = [
        {"type": "text", "text": "read /home/me/app/a and file:///home/me/app/a"},
        {"type": "resource_link", "name": "a b", "uri": "file:///home/me/app/a%20b#L3"},
        {"type": "resource", "resource": {"uri": "file:///home/me/app/lib/c", "text": "c"}},
        {"type": "resource_link", "name": "web", "uri": "https://example.org/home/me/app"},
        {"type": "resource_link", "name": "far", "uri": "file://server/home/me/app"},
    ]

    found = await sent(chain, "session/prompt", {"sessionId": "s", "prompt": blocks})

    assert found["prompt"] == [
        blocks[0],
        {"type": "resource_link", "name": "a b", "uri": "file:///workspace/a%20b#L3"},
        {"type": "resource", "resource": {"uri": "file:///lib/c", "text": "c"}},
        *blocks[3:],
    ]


async def test_locations_and_diffs_of_tool_calls_are_those_of_the_client(chain):
    members = {
        "toolCallId": "c1",
        "title": "Edit /workspace/a",
        "rawInput": {"path": "/workspace/a"},
    }

    found = await update(
        chain,
        {
            "sessionUpdate": "tool_call",
            **members,
            "locations": [{"path": "/workspace/a", "line": 3}, {"path": "/tmp/x"}],
            "content": [
                {"type": "diff", "path": "/lib/b", "oldText": "/lib", "newText": ""},
                {"type": "content", "content": {"type": "text", "text": "/workspace/a"}},
                {
                    "type": "content",
                    "content": {"type": "resource_link", "name": "a", "uri": "file:///workspace"},
                },
            ],
        },
    )

    assert found == {
        "sessionUpdate": "tool_call",
        **members,
        "locations": [{"path": "/home/me/app/a", "line": 3}, {"path": "/tmp/x"}],
        "content": [
            {"type": "diff", "path": "/home/me/app/lib/b", "oldText": "/lib", "newText": ""},
            {"type": "content", "content": {"type": "text", "text": "/workspace/a"}},
            {
                "type": "content",
                "content": {"type": "resource_link", "name": "a", "uri": "file:///home/me/app"},
            },
        ],
    }


async def test_version_2_has_lists_of_changes_terminals_and_subagents(chain):
    change = {"operation": "move", "oldPath": "/workspace/a", "path": "/workspace/b"}
    content = [{"type": "diff", "changes": [change]}]

    call = await update(
        chain,
        {"sessionUpdate": "tool_call_update", "toolCallId": "c", "content": content},
        version=2,
    )
    terminal = await update(
        chain, {"sessionUpdate": "terminal_update", "terminalId": "t", "cwd": "/lib"}, version=2
    )
    child = await update(
        chain,
        {
            "sessionUpdate": "subagent_update",
            "sessionId": "c",
            "cwd": None,
            "additionalDirectories": ["/lib"],
        },
        version=2,
    )

    assert call["content"][0]["changes"] == [
        {"operation": "move", "oldPath": "/home/me/app/a", "path": "/home/me/app/b"}
    ]
    assert terminal["cwd"] == "/home/me/app/lib"
    assert (child["cwd"], child["additionalDirectories"]) == (None, ["/home/me/app/lib"])


async def test_a_permission_request_names_the_files_of_the_client(chain):
    call = {"toolCallId": "c", "locations": [{"path": "/workspace/a"}]}
    option = {"optionId": "yes", "name": "Yes", "kind": "allow_once"}
    outcome = {"outcome": {"outcome": "selected", "optionId": "yes"}}

    found = await asked(
        chain, "session/request_permission", {"toolCall": call, "options": [option]}, outcome
    )

    assert found["toolCall"]["locations"] == [{"path": "/home/me/app/a"}]


@pytest.mark.parametrize(
    ("method", "params", "expected", "answer"),
    [
        (
            "fs/read_text_file",
            {"path": "/workspace/a", "line": 1},
            {"path": "/home/me/app/a", "line": 1},
            {"content": "/workspace"},
        ),
        (
            "fs/write_text_file",
            {"path": "/workspace/a", "content": "/workspace/a"},
            {"path": "/home/me/app/a", "content": "/workspace/a"},
            None,
        ),
        (
            "terminal/create",
            {"command": "/workspace/run", "args": ["/workspace"], "cwd": "/lib"},
            {"command": "/home/me/app/run", "args": ["/workspace"], "cwd": "/home/me/app/lib"},
            {"terminalId": "t"},
        ),
    ],
)
async def test_files_and_terminals_of_the_client(chain, method, params, expected, answer):
    found = await asked(chain, method, params, answer)

    assert {name: found[name] for name in expected} == expected


async def test_listed_sessions_have_the_directories_of_the_client(chain):
    listed = {"sessions": [{"sessionId": "s", "cwd": "/workspace/x"}], "_meta": {"cwd": "/lib"}}
    agent = FakeAgent(handlers={"session/list": lambda params: listed})
    async with chain(PathMap(PATHS), agent, bridged=False) as client:
        await client.initialize()
        found = await client.request("session/list", {"cwd": "/home/me/app/lib"})

    assert agent.transcript.of("session/list", "request")[0].params == {"cwd": "/lib"}
    assert found == {
        "sessions": [{"sessionId": "s", "cwd": "/home/me/app/x"}],
        "_meta": {"cwd": "/lib"},
    }


async def test_open_documents_and_suggestions_for_them(chain):
    suggestion = {"kind": "jump", "uri": "file:///lib/b", "position": {"line": 1, "character": 1}}
    agent = FakeAgent(
        handlers={
            "nes/start": lambda params: {"sessionId": "n"},
            "nes/suggest": lambda params: {"suggestions": [suggestion]},
        }
    )
    opened = {"sessionId": "n", "uri": "file:///home/me/app/a"}
    async with chain(PathMap(PATHS), agent, bridged=False) as client:
        await client.initialize()
        await client.request("nes/start", {"workspaceUri": "file:///home/me/app"})
        for event in ("didOpen", "didChange", "didFocus", "didSave", "didClose"):
            client.notify(f"document/{event}", opened)
        context = {"openFiles": [{"uri": "file:///home/me/app/a"}]}
        found = await client.request("nes/suggest", {**opened, "context": context})

    (start,) = agent.transcript.of("nes/start", "request")
    (suggest,) = agent.transcript.of("nes/suggest", "request")
    documents = [heard for heard in agent.transcript if heard.method.startswith("document/")]
    assert start.params == {"workspaceUri": "file:///workspace"}
    assert [heard.params["uri"] for heard in documents] == 5 * ["file:///workspace/a"]
    assert suggest.params["uri"] == "file:///workspace/a"
    assert suggest.params["context"] == {"openFiles": [{"uri": "file:///workspace/a"}]}
    assert found == {"suggestions": [{**suggestion, "uri": "file:///home/me/app/lib/b"}]}


async def test_an_update_without_such_a_path_keeps_its_bytes(chain):
    async def say(session):
        agent.endpoint.send_line(
            b'{"jsonrpc":"2.0","method":"session/update","params": {"sessionId":"%s", "update":'
            b' {"sessionUpdate":"tool_call","toolCallId":"c","n":1e400,"n":2}}}' % session.encode()
        )

    agent = FakeAgent(turns=[[say]])
    async with chain(PathMap(PATHS), agent, bridged=False) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/home/me/app"), "hi")
        (message,) = client.transcript.of("session/update")

    assert b'"n":1e400,"n":2' in bytes(message.raw)


def test_a_path_is_mapped_at_a_boundary_and_after_dots_are_resolved():
    mapping = PathMapping({"/a": "/x", "/a/b": "/y", "/": "/all"})

    assert mapping.path("/a") == "/x"
    assert mapping.path("/a/") == "/x/"
    assert mapping.path("/a/b/c") == "/y/c"
    assert mapping.path("/ab") == "/all/ab"
    assert mapping.path("/a/b/../c") == "/x/c"
    assert mapping.path("a/b") == "a/b"
    assert mapping.path(None) is None
    assert PathMapping({"/x": "/"}).path("/x") == "/"
    assert PathMapping({"/x": "/"}).path("/x/y") == "/y"


def test_the_first_of_several_directories_with_one_path_is_that_of_the_client():
    proxy = PathMap({"/link": "/workspace", "/real": "/workspace"})

    assert proxy._to_agent.path("/real/a") == "/workspace/a"
    assert proxy._to_client.path("/workspace/a") == "/link/a"


def test_a_relative_path_is_a_mistake():
    with pytest.raises(ValueError, match="`app` is not an absolute path"):
        PathMap({"app": "/workspace"})
    with pytest.raises(ValueError, match=r"`workspace` is not an absolute path$"):
        PathMap({"/app": "workspace"})


def test_the_home_directory_of_the_agent_is_unknown():
    with pytest.raises(ValueError, match="`~/app` is not an absolute path: the agent's home"):
        PathMap({"~/app": "~/app"})


WEB = {"url", "baseUrl", "src"}
"""Members with the format of a URI that are never files."""
SHOWN = {("session/request_permission", "subject", "command"), ("terminal_update", "command")}
"""For people: a command as one text, with its arguments."""


@pytest.mark.parametrize("version", [1, 2])
def test_every_path_and_uri_of_the_schema_is_in_the_tables(version):
    definitions = {}
    for directory in ("2026-08", "newest"):  # methods that were removed are still served
        file = SCHEMAS / directory / f"v{version}.json"
        definitions |= json.loads(file.read_text())["$defs"]
    in_tables = {
        *flat(PARAMS),
        *flat(UPDATES),
        *((name, "result", *rest) for name, *rest in flat(RESULTS)),
    }
    in_schema = set()
    for name, method in METHODS_BY_VERSION[version].items():
        if name == "session/update":
            update = definitions["SessionUpdate"]
            for kind in update.get("anyOf") or update["oneOf"]:
                word = kind.get("properties", {}).get("sessionUpdate", {}).get("const")
                in_schema |= {(word, *path) for path in paths(definitions, kind)}
            continue
        in_schema |= {(name, *path) for path in paths(definitions, ref(method.params))}
        if method.result is not None and method.result in definitions:
            found = paths(definitions, ref(method.result))
            in_schema |= {(name, "result", *path) for path in found}

    in_schema = {each for each in in_schema if each[-1] not in WEB} - SHOWN
    assert sorted(map(".".join, in_schema - in_tables)) == []
    assert len(in_schema) > 40


def ref(name):
    return {"$ref": f"#/$defs/{name}"}


def paths(definitions, schema, above=()):
    """The members of a type that are paths or URIs: called so, of that type, or described so."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in above:
            yield from paths(definitions, definitions[name], (*above, name))
    for group in ("anyOf", "oneOf", "allOf"):
        for each in schema.get(group, ()):
            yield from paths(definitions, each, above)
    if "items" in schema:
        yield from paths(definitions, schema["items"], above)
    for member, of in schema.get("properties", {}).items():
        if is_path(member, of):
            yield (member,)
        else:
            for path in paths(definitions, of, above):
                yield (member, *path)


def is_path(member, schema):
    return (
        member in ("uri", "path", "cwd", "command")
        or "$defs/AbsolutePath" in json.dumps(schema)
        or schema.get("format") == "uri"
        or (
            "absolute" in schema.get("description", "").lower()
            and schema.get("type") in ("string", "array")
        )
    )


def flat(table):
    """The members of a table as tuples of names."""
    for name, members in table.items():
        if isinstance(members, str):
            yield (name,)
        else:
            for rest in flat(members):
                yield (name, *rest)
