"""Turns that change files, with the checkpoint proxy in the chain."""

from __future__ import annotations

import os
import shutil

import pytest

from conductor.testing import FakeAgent

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
OPTIONS = [{"optionId": "y", "name": "Yes", "kind": "allow_once"}]


def call(kind, id="1"):
    return {"sessionUpdate": "tool_call", "toolCallId": id, "title": "Do it", "kind": kind}


def files(directory):
    """The contents of the files below a directory, of links their targets."""
    found = {}
    for where, directories, names in os.walk(directory):
        for name in [*names, *directories]:
            path = os.path.join(where, name)
            if os.path.islink(path):
                found[os.path.relpath(path, directory)] = ("link", os.readlink(path))
            elif os.path.isfile(path):
                with open(path, "rb") as file:
                    found[os.path.relpath(path, directory)] = file.read().decode(errors="replace")
    return found


def changes(agent, *functions, kind="edit"):
    """A turn that announces a tool call, and then runs it, as after the user has agreed."""

    async def run(session):
        await agent.endpoint.request(
            "session/request_permission",
            {"sessionId": session, "toolCall": {"toolCallId": "1"}, "options": OPTIONS},
        )
        for function in functions:
            function()

    return [call(kind), run]


async def opened(client, project, version=1):
    await client.initialize(version=version)
    params = {"cwd": str(project), "mcpServers": []}
    return (await client.request("session/new", params))["sessionId"]


async def command(client, session, text):
    """What a slash command says."""
    before = len(client.transcript.text())
    await client.prompt(session, text)
    return client.transcript.text()[before:]


async def rewound(chain, project, proxy, *functions):
    """The files after a turn with these changes and a rewind to before it."""
    agent = FakeAgent()
    agent.turns = [changes(agent, *functions)]
    async with chain(proxy, agent) as client:
        session = await opened(client, project)
        await client.prompt(session, "Change it")
        said = await command(client, session, "/rewind 1")
    return files(project), said
