"""Import and creation of plugins: process, count, and errors."""

import os
from pathlib import Path

import psutil
import pytest
from support.peers.process import agent

PLUGIN = """
import os
import subprocess
import sys
import time
from contextlib import asynccontextmanager

import attrs

from conductor.proxy import Proxy, on, run

COUNT = os.path.join(os.path.dirname(__file__), "count")


def count(what):
    with open(COUNT, "a") as file:
        file.write(f"{what} {os.getpid()}\\n")


class Own(BaseException):
    pass


class NoText(Exception):
    def __str__(self):
        raise RuntimeError


def fail(how):
    match how:
        case "recursion":
            fail(how)
        case "exit":
            sys.exit("planned")
        case "interrupt":
            raise KeyboardInterrupt("planned")
        case "own":
            raise Own("planned")
        case "text":
            raise NoText


def checked(instance, attribute, value):
    if instance.where == "option":
        fail(value)


@attrs.define
class Counted(Proxy):
    where: str = ""
    how: str = attrs.field(default="", validator=checked)
    secret: str = ""

    def __attrs_post_init__(self):
        count("made")
        if self.where == "constructor":
            fail(self.how)

    @asynccontextmanager
    async def lifespan(self):
        if self.where == "lifespan":
            fail(self.how)
        yield

    @on("session/prompt")
    async def prompt(self, params: dict, forward):
        child = subprocess.run(["env"], capture_output=True, text=True)
        params["prompt"][0]["text"] = "echo " + repr((os.getpid(), self.secret in child.stdout))
        return await forward(params)


count("imported")
MORE
run(Counted)
"""
HOW = {"inside": {}, "isolated": {"isolate": True}}
how = pytest.mark.parametrize("keys", HOW.values(), ids=HOW)


@pytest.fixture
def counted(tmp_path):
    """A component of the plugin, and what was counted: (what, pid)."""
    path = tmp_path / "counted.py"

    def component(keys=(), more="", **options):
        path.write_text(PLUGIN.replace("MORE", more))
        return {"use": f"{path}:Counted", "name": "counted", "with": options, **dict(keys)}

    def counts():
        lines = (tmp_path / "count").read_text().splitlines()
        return [(what, int(pid)) for what, pid in map(str.split, lines)]

    component.counts = counts
    return component


@pytest.mark.parametrize(
    "keys",
    [HOW["inside"], pytest.param(HOW["isolated"], marks=pytest.mark.fast)],
    ids=HOW,
)
def test_a_plugin_is_imported_and_made_once_where_it_lives(start_file, counted, keys):
    editor = start_file(agent(), counted(keys, secret="the-secret-option"))
    editor.open()

    where, seen_by_children = eval(editor.ask("echo"))

    assert seen_by_children is False
    assert (where == editor.pid) is ("isolate" not in keys)
    assert counted.counts() == [("imported", where), ("made", where)]
    assert "the-secret-option" not in Path(f"/proc/{where}/environ").read_text()
    assert editor.leave() == 0


def refused(editor, place):
    """The error of `initialize`, which names the plugin and its place."""
    error = editor.initialize()["error"]
    assert error["message"].startswith("component 'counted' did not start: ")
    assert error["data"]["component"] == "counted"
    assert error["data"]["place"].startswith(place)
    assert editor.leave() == 3
    return error["message"]


TYPES = """
import sys

from conductor.proxy import Proxy, on, on_prompt
from conductor.proxy.peers import text


class Types(Proxy):
    @on("_modules", source="client")
    async def modules(self, params: dict):
        return sorted(sys.modules)

    @on_prompt
    async def remind(self, session, prompt, forward):
        prompt.blocks.append(text("Be kind."))
        return await forward()
"""


def test_the_schema_types_of_a_plugin_are_loaded_before_its_first_prompt(start_file, tmp_path):
    (tmp_path / "types.py").write_text(TYPES)
    editor = start_file(agent(), {"use": f"{tmp_path}/types.py:Types"})
    session = editor.open()
    before = editor.answer(editor.request("_modules"))["result"]

    editor.answer(editor.prompt("say hello", session))

    assert editor.answer(editor.request("_modules"))["result"] == before
    assert "conductor.schema.v1" in before


@pytest.mark.parametrize(
    ("where", "fault"),
    [
        ("option", "recursion"),
        ("constructor", "interrupt"),
        ("lifespan", "own"),
        ("option", "text"),
    ],
)
def test_any_exception_of_a_plugin_at_its_start_is_the_error_of_initialize(
    start_file, counted, tmp_path, where, fault
):
    editor = start_file(agent(), counted(where=where, how=fault))

    message = refused(editor, f"{tmp_path}/chain.yaml:")

    assert ("planned" in message) is (fault in ("interrupt", "own"))
    assert ("RecursionError" in message) is (fault == "recursion")
    assert ("NoText" in message) is (fault == "text")


@pytest.mark.parametrize(("where", "fault"), [("constructor", "exit"), ("lifespan", "own")])
def test_any_exception_of_an_isolated_plugin_at_its_start_is_the_error_of_initialize(
    start_file, counted, tmp_path, where, fault
):
    editor = start_file(agent(), counted(HOW["isolated"], where=where, how=fault))

    assert "planned" in refused(editor, f"{tmp_path}/chain.yaml:")


@how
def test_errors_in_options_name_their_place(start_file, counted, tmp_path, keys):
    spec = counted(keys, where="x", colour="red")
    editor = start_file(agent(), {**spec, "with": {**spec["with"], "where": ["a", "list"]}})

    message = refused(editor, f"{tmp_path}/chain.yaml:")

    assert '\n       |           "colour": "red"\n' not in message  # as it stands in the file:
    assert "error: unknown option `colour`" in message
    assert 'colour": "red"' in message
    assert "error: where: expected text, found a list" in message
    assert message.count("chain.yaml:") == 2


@pytest.mark.parametrize("more", ["sys.exit(0)", "os._exit(0)", "time.sleep(1000)"])
def test_module_code_of_an_isolated_plugin_runs_in_its_own_process(
    start_file, counted, tmp_path, more
):
    timeout = {"start_timeout": "2s"} if "sleep" in more else {}
    editor = start_file(agent(), counted({"isolate": True, **timeout}, more))

    message = refused(editor, f"{tmp_path}/chain.yaml:")

    reasons = {
        "sys.exit(0)": "counted.py cannot be imported: SystemExit: 0",
        "os._exit(0)": "it exited with status 0",
        "time.sleep(1000)": "it did not answer `proxy/initialize` within 2 s",
    }
    assert reasons[more] in message
    assert editor.pid not in [pid for _, pid in counted.counts()]


def test_an_isolated_plugin_is_not_looked_for_in_the_working_directory(
    start_file, counted, tmp_path
):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "attrs.py").write_text("raise RuntimeError('of a project')")
    editor = start_file(agent(), counted({"isolate": True, "cwd": str(tmp_path / "work")}))

    editor.open()

    assert editor.leave() == 0


def test_the_options_of_an_isolated_plugin_are_removed_from_its_environment(start_agent, counted):
    path = counted()["use"].partition(":")[0]
    options = '{"secret": "the-secret-option"}'
    command = ["env", f"ACP_PROXY_OPTIONS={options}", os.sys.executable, path]
    editor = start_agent(command, agent())
    editor.open()

    where, seen_by_children = eval(editor.ask("echo"))

    assert psutil.Process(where).ppid() == editor.pid
    assert seen_by_children is False
    assert "the-secret-option" not in Path(f"/proc/{where}/environ").read_text()
    assert editor.leave() == 0
