"""What a handler logs names the message that it handles; what its tasks send, too."""

import json

import pytest

from conductor import log
from conductor.chainfile import load
from conductor.client.acp_client import Client
from conductor.client.embedding import attach_file
from conductor.plugins.handler_call import (
    HandlerCall,
    begin_worker,
    current_handler_call,
    handled_message,
    leave_handler_call,
)
from conductor.plugins.lane import LaneNotification
from conductor.routing.trace import Mark

PLUGIN = """
import attrs
from conductor.log import get_logger
from conductor.proxy import Proxy, on

log = get_logger(component="mine")

@attrs.define
class Logs(Proxy):
    @on("session/prompt")
    async def prompt(self, request: dict, forward):
        log.warning("prompt")
        self.start_soon(self.later)
        answer = await forward(request)
        log.warning("answered")
        return answer

    @on("session/update")
    async def update(self, message: dict, forward):
        log.warning("update", method="its own")
        await forward(message)

    @on("_x/ping", source="client")
    async def ping(self, message: dict, forward):
        log.warning("ping")

    async def later(self):
        log.warning("later")
"""


@pytest.fixture(autouse=True)
def json_log():
    log.configure("warning", as_json=True)
    yield
    log.configure("warning")


async def test_log_lines_of_handlers_have_method_and_session(tmp_path, capfd):
    (tmp_path / "logs.py").write_text(PLUGIN)
    file = tmp_path / "chain.yaml"
    file.write_text("version: 1\nproxies: [{use: ./logs.py:Logs}]\nagent: {use: test-agent}\n")
    async with attach_file(Client, load(str(file))) as attached:
        await attached.client.initialize()
        session = await attached.client.new_session("/")
        await attached.client.prompt(session, "say one")
        attached.client.notify("_x/ping", {})
        await attached.client.prompt(session, "say one")

    lines = map(json.loads, capfd.readouterr().err.splitlines())
    named = {each["event"]: (each.get("method"), each.get("session")) for each in lines}
    assert named == {
        "prompt": ("session/prompt", session),
        "answered": ("session/prompt", session),
        "update": ("its own", session),
        "ping": ("_x/ping", None),
        "later": (None, session),
    }


async def test_the_messages_of_a_task_have_the_one_that_it_was_started_for_as_their_cause():
    mark = Mark(0.0)
    item = LaneNotification("session/update", b'{"sessionId":"one"}')
    current_handler_call.set(HandlerCall(None, None, None, item, mark=mark, done=True))
    assert handled_message() is None  # of a handler that has ended

    outer = leave_handler_call()
    assert handled_message() is mark
    inner = leave_handler_call()
    assert handled_message() is mark
    inner.done = True
    assert handled_message() is None
    assert outer.cause is inner.cause is mark


async def test_a_worker_that_a_task_has_started_has_neither_its_cause_nor_its_session(capfd):
    item = LaneNotification("session/update", b'{"sessionId":"one"}')
    current_handler_call.set(HandlerCall(None, None, None, item, mark=Mark(0.0)))
    leave_handler_call()
    begin_worker()
    assert handled_message() is None
    log.get_logger(component="mine").warning("worker")
    assert "session" not in json.loads(capfd.readouterr().err)
