"""What the watchdog's thread logs about a blocked event loop, and when."""

from __future__ import annotations

import pytest

from conductor.chain import blocking_log
from conductor.chain.blocking_log import INTERVAL, BlockingLog, is_waiting
from conductor.plugins.plugin_code import PluginCall, PluginCode
from conductor.transport.epoll_loop import EpollFastPath

WAITING, RUNNING = "waiting", "running"
"""Innermost frames of the loop, besides the plugin code that runs."""
OF_HANDLER = {"plugin": "notes", "handler": "notes.py:7", "method": "session/prompt"}
FIELDS = {**OF_HANDLER, "at": "notes.py:9", "inside": "ssl.py:3"}


def handler(*, is_import=False):
    call = PluginCall(object(), OF_HANDLER)
    return PluginCode(call, "notes.py:9", "ssl.py:3", is_import)


class Loop:
    """An event loop: what its thread does, and the pings that it got."""

    def __init__(self, monkeypatch):
        self.does = WAITING
        self.pings = 0
        self.logged = []
        self.watched = BlockingLog(lambda: self.does, self.ping, self)
        code = lambda frame: frame if isinstance(frame, PluginCode) else None  # noqa: E731
        monkeypatch.setattr(blocking_log, "plugin_code", code)
        monkeypatch.setattr(blocking_log, "is_waiting", lambda frame: frame == WAITING)
        monkeypatch.setattr(blocking_log, "location", lambda frame: frame)

    def ping(self):
        self.pings += 1

    def warning(self, event, **fields):
        self.logged.append((event, fields))

    def look(self, does, seconds=INTERVAL):
        self.does = does
        self.watched.look(seconds, replied=False)

    def reply(self, after=0.0):
        self.watched.look(after, replied=True)


@pytest.fixture
def loop(monkeypatch):
    return Loop(monkeypatch)


def test_a_loop_that_waits_for_events_is_not_woken(loop):
    for _ in range(10):
        loop.look(WAITING)

    assert (loop.pings, loop.logged) == (0, [])


def test_a_busy_loop_that_replies_is_pinged_and_not_logged(loop):
    for _ in range(10):
        loop.look(handler())
        loop.reply(0.1)

    assert (loop.pings, loop.logged) == (10, [])


def test_a_handler_that_blocks_is_logged_once_when_it_ends(loop):
    blocks = handler()
    for _ in range(4):
        loop.look(blocks)
    assert (loop.pings, loop.logged) == (1, [])

    loop.reply(0.25)
    loop.look(WAITING)

    assert loop.logged == [("event loop was blocked", {**FIELDS, "seconds": 1.8})]


def test_a_handler_that_goes_on_blocking_is_logged_after_five_seconds_and_not_again(loop):
    blocks = handler()
    for _ in range(100):
        loop.look(blocks)
    loop.reply()

    assert loop.logged == [("event loop is blocked", {**FIELDS, "seconds": 5.0})]


def test_each_blocking_has_its_line(loop):
    for _ in range(2):
        blocks = handler()
        loop.look(blocks)
        loop.look(blocks)
        loop.reply()

    assert len(loop.logged) == 2


def test_many_short_handlers_are_not_taken_for_one_that_blocks(loop):
    loop.look(handler())
    loop.look(handler())
    loop.reply(0.25)

    assert loop.logged == []


@pytest.mark.parametrize("code", [RUNNING, handler(is_import=True)])
def test_imports_and_other_code_are_logged_after_five_seconds_only(loop, code):
    for _ in range(10):
        loop.look(code)
    loop.reply()
    assert loop.logged == []

    for _ in range(11):
        loop.look(code)

    ((event, fields),) = loop.logged
    assert event == "event loop is blocked"
    assert fields["at"] == ("notes.py:9" if code is not RUNNING else RUNNING)


def test_code_that_kept_the_watchdog_from_looking_has_blocked_for_that_time(loop):
    loop.look(handler(), seconds=3.5)
    loop.reply(0.0)

    assert loop.logged == [("event loop was blocked", {**FIELDS, "seconds": 3.0})]


def test_code_that_returns_before_the_watchdog_can_look_again_has_blocked(loop):
    loop.look(handler())
    loop.look(RUNNING, seconds=0.9)
    loop.reply()

    assert loop.logged == [("event loop was blocked", {**FIELDS, "seconds": 0.9})]


@pytest.mark.parametrize("before", [RUNNING, handler(is_import=True), handler()])
def test_code_that_begins_just_after_a_look_at_other_code_has_blocked(loop, before):
    blocks = handler()
    loop.look(before)
    loop.look(blocks)
    loop.look(blocks)
    loop.reply(0.1)

    assert loop.logged == [("event loop was blocked", {**FIELDS, "seconds": 0.6})]


def test_code_that_begins_just_after_a_look_and_keeps_the_watchdog_from_looking_has_blocked(loop):
    loop.look(RUNNING)
    loop.look(handler(), seconds=1.5)
    loop.reply()

    assert loop.logged == [("event loop was blocked", {**FIELDS, "seconds": 1.0})]


def test_a_loop_waits_in_trio_or_in_the_epoll_fast_path():
    class Frame:
        f_globals: dict = {"__name__": "trio._core._io_kqueue"}  # noqa: RUF012

        class f_code:
            co_name = "get_events"

    assert is_waiting(Frame)
    Frame.f_globals = {"__name__": "notes"}
    assert not is_waiting(Frame)
    Frame.f_code = EpollFastPath._serve_for.__code__
    assert is_waiting(Frame)


def test_the_seconds_of_a_plugin_are_those_of_one_call_of_it(loop):
    code = handler()
    seconds = []
    for _ in range(3):
        loop.look(code)
        seconds.append(loop.watched.seconds_of_plugin)
    loop.reply()

    assert seconds == [0.0, INTERVAL, 2 * INTERVAL]
    assert loop.watched.seconds_of_plugin == 0


@pytest.mark.parametrize("does", [RUNNING, handler(is_import=True)])
def test_imports_and_other_code_are_no_plugin_that_blocks(loop, does):
    for _ in range(3):
        loop.look(does)

    assert loop.watched.seconds_of_plugin == 0
