from __future__ import annotations

import fcntl
import os
import threading

import pytest

from proxies.journal.files import JournalFiles, agent_directory


@pytest.fixture
def files(tmp_path):
    return JournalFiles(tmp_path, 8192, 3, str)


def update(text):
    chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    return {"update": chunk}


def prompt(text):
    return {"prompt": [{"type": "text", "text": text}]}


def test_the_oldest_turns_of_a_large_file_are_left_out(files, tmp_path):
    files.create("s", "/work", [])
    files.append("s", {"title": "First"})
    for number in range(100):
        files.append("s", prompt(f"prompt {number}"))
        files.append("s", update("x" * 100))
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 8192

    kept = files.read("s")
    assert kept.is_cut
    assert kept.title == "First"
    assert "prompt" in kept.records[0]
    assert kept.records[-2] == prompt("prompt 99")
    assert len(kept.records) > 20


def test_of_a_turn_that_is_too_large_the_newest_updates_are_kept(files):
    files.create("s", "/work", [])
    files.append("s", prompt("prompt"))
    for number in range(100):
        files.append("s", update(f"{number} " + "x" * 100))

    kept = files.read("s")
    assert kept.is_cut
    assert kept.records[-1]["update"]["content"]["text"].startswith("99 ")
    assert len(kept.records) > 20


def test_an_update_that_is_too_large_keeps_what_it_is(files):
    call = {"sessionUpdate": "tool_call", "toolCallId": "1", "rawOutput": "x" * 9000}
    files.create("s", "/work", [])
    files.append("s", {"update": call})
    files.append("s", update("x" * 9000))
    files.append("s", prompt("x" * 9000))

    first, second, third = files.read("s").records
    assert first == {"update": {"sessionUpdate": "tool_call", "toolCallId": "1"}}
    assert "bytes are not in the journal" in second["update"]["content"]["text"]
    assert "bytes are not in the journal" in third["prompt"][0]["text"]


def test_of_too_many_sessions_the_oldest_are_removed(files, tmp_path):
    for number in range(5):
        files.create(str(number), "/work", [])
        files.append(str(number), {"title": f"Session {number}"})
        files.append(str(number), prompt("a"))
        os.utime(files._path(str(number)), (number, number))

    assert [each.id for each in files.sessions()] == ["4", "3", "2"]


def test_a_cut_line_does_not_damage_the_next_one(files):
    """After a crash or a full disk; the id of the agent's session is what comes next."""
    files.create("s", "/work", [])
    files.append("s", prompt("a"))
    with files._path("s").open("ab") as file:
        file.write(b'{"update": {"sess')
    files.append("s", {"agent_session": "s-2"})

    assert files.read("s").agent_session == "s-2"


def test_two_processes_with_one_session_lose_nothing_while_one_leaves_out_old_turns(tmp_path):
    """Each leaves out what the other has written before, and nothing after that."""
    files = [JournalFiles(tmp_path, 8192, 3, str) for _ in range(2)]
    files[0].create("s", "/work", [])

    def append(number):
        for n in range(200):
            files[number].append("s", prompt(f"{number} {n} " + "x" * 100))

    threads = [threading.Thread(target=append, args=[number]) for number in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)

    kept = [each["prompt"][0]["text"].split()[:2] for each in files[0].read("s").records]
    for number in "01":
        of_one = [int(n) for which, n in kept if which == number]
        assert of_one == list(range(200 - len(of_one), 200))


def test_an_id_is_never_a_path_and_is_taken_once(files, tmp_path):
    assert files.create("../../x", "/work", [])
    assert not files.create("../../x", "/work", [])
    assert files.create("\ud800", "/work", [])
    assert len(list(tmp_path.iterdir())) == 2


def test_a_new_title_counts(files):
    files.create("s", "/work", [])
    files.append("s", {"title": "A"})
    files.append("s", {"title": "B"})

    assert files.read("s").title == "B"
    assert files.delete("s")
    assert not files.delete("s")
    assert files.read("s") is None


def test_a_process_that_keeps_the_lock_is_waited_for_once(files, tmp_path, monkeypatch):
    """Nothing else runs meanwhile. It may have been stopped, or be the agent."""
    files.create("s", "/work", [])
    times = [0.0]
    monkeypatch.setattr("conductor.files.time.monotonic", lambda: times[0])
    monkeypatch.setattr(
        "conductor.files.time.sleep", lambda seconds: times.append(times.pop() + 0.1)
    )
    with next(tmp_path.iterdir()).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for _ in range(3):
            with pytest.raises(BlockingIOError, match="another process has locked it"):
                files.append("s", prompt("lost"))
            assert 0.4 < times[0] < 0.7
        fcntl.flock(lock, fcntl.LOCK_UN)

    files.append("s", prompt("kept"))
    assert files.read("s").records == [prompt("kept")]


def test_a_file_that_another_user_has_put_there_is_neither_read_nor_written(
    files, tmp_path, monkeypatch
):
    """In a directory in which every user can write."""
    files.create("s", "/work", [])
    files.append("s", {"title": "Of another user"})
    before = next(tmp_path.iterdir()).read_bytes()
    if os.geteuid() == 0:  # what root has written is read
        os.chown(next(tmp_path.iterdir()), 4321, -1)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    for use in (lambda: files.read("s"), lambda: files.append("s", prompt("secret"))):
        with pytest.raises(PermissionError, match="belongs to another user"):
            use()
    assert files.sessions() == []
    assert next(tmp_path.iterdir()).read_bytes() == before


def test_no_link_is_followed(files, tmp_path):
    files.create("s", "/work", [])
    path, outside = next(tmp_path.iterdir()), tmp_path / "outside"
    path.rename(outside)
    kept = outside.read_bytes()
    path.symlink_to(outside)
    with pytest.raises(OSError, match="symbolic link"):
        files.append("s", prompt("secret"))

    assert outside.read_bytes() == kept


def test_files_behind_a_link_in_the_place_of_the_directory_are_not_removed(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").touch()
    (tmp_path / "agent").symlink_to("data")
    files = JournalFiles(tmp_path / "agent", 1000, 1, str)

    with pytest.raises(NotADirectoryError, match="symbolic link"):
        files.create("s", "/work", [])
    assert (tmp_path / "data" / "a.jsonl").exists()


@pytest.mark.parametrize("name", ["..", ".", "a/../../b", "/etc", "...", "\ud800", "a\0b"])
def test_the_name_of_an_agent_is_never_a_path(name, tmp_path):
    directory = agent_directory(tmp_path, name)
    directory.mkdir()
    assert directory.resolve().parent == tmp_path.resolve()
