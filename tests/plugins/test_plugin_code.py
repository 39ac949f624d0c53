"""The plugin, function and line that a stack is in."""

from __future__ import annotations

import os
import sys
from contextlib import asynccontextmanager

import attrs
import trio.lowlevel
from support.peers.port import hop

from conductor.chainfile.model import ComponentSpec
from conductor.plugins.loading import load_class
from conductor.plugins.plugin_code import plugin_code
from conductor.proxy import Prompt, Proxy, Session, on, on_prompt
from tests.support.plugins import load_plugin

HERE = __file__


def call_library(found):
    """Look at the stack, as a watchdog does, while the first line of os.py runs."""
    code = compile("found.append(plugin_code(sys._getframe()))", os.__file__, "exec")
    exec(code, globals(), {"found": found})


def line_of(text):
    """Where a text is written in this file, as file:line."""
    with open(HERE) as file:
        (number,) = [n for n, line in enumerate(file, 1) if text in line and "line_of" not in line]
    return f"{HERE}:{number}"


@attrs.define(eq=False)
class Looks(Proxy):
    found: list = attrs.Factory(list)

    @on("_x/request", source="client")
    async def request(self, params: dict, forward):
        await trio.lowlevel.checkpoint()
        call_library(self.found)
        return {}

    @on("_x/note", source="client")
    async def note(self, params: dict, forward):
        self.found.append(plugin_code(sys._getframe()))  # in a notification
        self.start_soon(self.beside)

    async def beside(self):
        self.found.append(plugin_code(sys._getframe()))  # in a task

    @asynccontextmanager
    async def lifespan(self):
        self.found.append(plugin_code(sys._getframe()))  # in the lifespan
        yield


async def test_the_handler_of_a_request_with_its_method():
    async with hop(plugin := Looks()) as on_hop:
        on_hop.client.ask("_x/request", {})
        await on_hop.settle()

    found = plugin.found[-1]
    assert found.fields["plugin"] == "hop"
    assert found.fields["method"] == "_x/request"
    assert found.fields["handler"].startswith(f"{HERE}:")
    assert found.fields["at"] == line_of("exec(code")


async def test_the_handler_of_a_notification_and_a_task():
    async with hop(plugin := Looks()) as on_hop:
        on_hop.client.send("_x/note", {})
        await on_hop.settle()

    _, note, task = plugin.found
    assert note.fields["method"] == "_x/note"
    assert note.fields["at"] == line_of("# in a notification")
    assert task.fields == {"plugin": "hop", "at": line_of("# in a task")}


async def test_the_lifespan():
    async with hop(plugin := Looks()):
        pass

    (found,) = plugin.found
    assert found.fields == {"plugin": "hop", "at": line_of("# in the lifespan")}


@attrs.define(eq=False)
class LooksAtPrompts(Proxy):
    found: list = attrs.Factory(list)

    @on_prompt
    async def prompt(self, session: Session, prompt: Prompt, forward):
        self.found.append(plugin_code(sys._getframe()))  # in an event
        return await forward()


async def test_the_handler_of_an_event_not_the_layer_that_calls_it():
    async with hop(plugin := LooksAtPrompts()) as on_hop:
        prompt = [{"type": "text", "text": "x"}]
        on_hop.client.ask("session/prompt", {"sessionId": "s", "prompt": prompt})
        await on_hop.settle()

    (found,) = plugin.found
    assert found.fields["method"] == "session/prompt"
    assert found.fields["handler"].startswith(f"{HERE}:")
    assert found.fields["at"] == line_of("# in an event")


async def test_two_messages_are_two_calls():
    async with hop(plugin := Looks()) as on_hop:
        on_hop.client.ask("_x/request", {}, name="first")
        on_hop.client.ask("_x/request", {}, name="second")
        await on_hop.settle()

    _, first, second = plugin.found
    assert first.call is not second.call
    assert first.fields == second.fields


MODULE = """
import sys

import attrs

from conductor.plugins.plugin_code import plugin_code
from conductor.proxy import Proxy

imported = plugin_code(sys._getframe())


@attrs.define
class Made(Proxy):
    made = None

    def __attrs_post_init__(self):
        Made.made = plugin_code(sys._getframe())
"""


def test_the_import_and_the_constructor(tmp_path):
    path = tmp_path / "made.py"
    path.write_text(MODULE)
    spec = ComponentSpec("notes", use=f"{path}:Made")

    load_plugin(spec)

    cls = load_class(spec)
    imported, made = sys.modules[cls.__module__].imported, cls.made
    for each in (imported, made):
        assert (each.call, each.fields["plugin"]) == (None, "notes")
    assert (imported.fields["at"], made.fields["at"]) == (f"{path}:9", f"{path}:17")


def test_no_plugin_runs():
    assert plugin_code(sys._getframe()) is None
    assert plugin_code(None) is None
