"""`support.leftovers`: what counts as a process that a test has left behind."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from support import leftovers
from support.forked_command import SERVERS


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """It is killed at the end; its stdin is a pipe."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
    ) as started:
        yield started
        started.kill()


def test_a_process_that_runs_on_is_found_and_killed(monkeypatch):
    before = leftovers.descendants()
    with process("sleep", "1000") as sleeper:
        monkeypatch.setattr(leftovers, "EXIT_TIME", 0.05)
        found = leftovers.left_behind(before)

        assert [text.partition(" (")[0] for text in found] == [f"{sleeper.pid}: sleep 1000"]
        monkeypatch.undo()
        assert leftovers.running(leftovers.descendants() - before) == []


def test_an_orphan_is_found():
    leftovers.adopt_orphans()
    before = leftovers.descendants()
    subprocess.run(["sh", "-c", "sleep 1000 &"], check=True)

    (orphan,) = leftovers.descendants() - before
    orphan.kill()
    assert leftovers.left_behind(before) == []


def test_a_process_in_its_exit_is_not_left_behind():
    before = leftovers.descendants()
    with process("cat") as copier:
        assert copier.stdin is not None
        copier.stdin.close()

        assert leftovers.left_behind(before) == []


def test_what_a_server_of_commands_starts_for_itself_is_not_counted():
    before = leftovers.descendants()
    with process("sh", "-c", "cat & echo; cat") as server:
        SERVERS.add(server.pid)
        assert server.stdout is not None
        server.stdout.readline()  # its child runs

        assert leftovers.descendants() == before
        SERVERS.remove(server.pid)
        assert len(leftovers.descendants() - before) > 1
        assert server.stdin is not None
        server.stdin.close()
        assert leftovers.left_behind(before) == []


def test_a_process_that_another_one_reaps_meanwhile_is_no_error():
    before = leftovers.descendants()
    with process("true") as ended:
        found = leftovers.descendants() - before
        ended.wait()

        assert leftovers.running(found) == []
