"""What the watchdog's thread logs about a blocked event loop, and when."""

from __future__ import annotations

import pytest

from conductor.chain import blocking_log
from conductor.chain.blocking_log import INTERVAL, BlockingLog
from conductor.plugins.plugin_code import PluginCode

OTHER = "trio.py:1"
"""Innermost frame of the loop while no plugin runs."""
FIELDS = {
    "plugin": "notes",
    "handler": "notes.py:7",
    "method": "session/prompt",
    "at": "notes.py:9",
}
HANDLER = PluginCode(object(), FIELDS)
IMPORT = PluginCode(None, {"plugin": "notes", "at": "notes.py:9"})


class Loop:
    """An event loop: what its thread does, and the pings that it got."""

    def __init__(self, monkeypatch):
        self.does = OTHER
        self.pings = 0
        self.logged = []
        self.watched = BlockingLog(lambda: self.does, self.ping, self)
        code = lambda frame: frame if isinstance(frame, PluginCode) else None  # noqa: E731
        monkeypatch.setattr(blocking_log, "plugin_code", code)
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


def test_a_loop_that_replies_is_not_logged(loop):
    for _ in range(10):
        loop.look(HANDLER)
        loop.reply(0.1)

    assert (loop.pings, loop.logged) == (10, [])


def test_a_handler_that_blocks_is_logged_once_when_it_ends(loop):
    for _ in range(4):
        loop.look(HANDLER)
    assert (loop.pings, loop.logged) == (1, [])

    loop.reply(0.25)
    loop.look(OTHER)

    assert loop.logged == [("event loop was blocked", {**FIELDS, "seconds": 1.8})]


def test_a_handler_that_goes_on_blocking_is_logged_after_five_seconds_and_not_again(loop):
    for _ in range(100):
        loop.look(HANDLER)
    loop.reply()

    assert loop.logged == [("event loop is blocked", {**FIELDS, "seconds": 5.0})]


def test_each_blocking_has_its_line(loop):
    for _ in range(2):
        loop.look(HANDLER)
        loop.look(HANDLER)
        loop.reply()

    assert len(loop.logged) == 2


@pytest.mark.parametrize("does", [OTHER, IMPORT])
def test_imports_and_other_code_are_logged_after_five_seconds_only(loop, does):
    for _ in range(10):
        loop.look(does)
    loop.reply()
    assert loop.logged == []

    for _ in range(11):
        loop.look(does)

    ((event, fields),) = loop.logged
    assert event == "event loop is blocked"
    assert fields["at"] == ("notes.py:9" if does is IMPORT else OTHER)


def test_code_that_kept_the_watchdog_from_looking_has_blocked_for_that_time(loop):
    loop.look(HANDLER, seconds=3.5)
    loop.reply(0.0)

    assert loop.logged == [("event loop was blocked", {**FIELDS, "seconds": 3.0})]


def test_code_that_returns_before_the_watchdog_can_look_again_has_blocked(loop):
    loop.look(HANDLER)
    loop.look(OTHER, seconds=0.9)
    loop.reply()

    assert loop.logged == [("event loop was blocked", {**FIELDS, "seconds": 0.9})]


def test_the_seconds_of_a_plugin_are_those_without_a_reply(loop):
    seconds = []
    for _ in range(3):
        loop.look(HANDLER)
        seconds.append(loop.watched.seconds_of_plugin)
    loop.reply()

    assert seconds == [0.0, INTERVAL, 2 * INTERVAL]
    assert loop.watched.seconds_of_plugin == 0


@pytest.mark.parametrize("does", [OTHER, IMPORT])
def test_imports_and_other_code_are_no_plugin_that_blocks(loop, does):
    for _ in range(3):
        loop.look(does)

    assert loop.watched.seconds_of_plugin == 0
