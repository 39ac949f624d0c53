"""`--debug-dir` writes the raw bytes of components and client, and harms no chain."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time

import pytest
from support.peers.process import CONDUCTOR, Editor, agent, python

from conductor.control import raw_streams
from conductor.transport.fd_transport import FdTransport

pytestmark = pytest.mark.slow

HEADER = re.compile(
    rb"\+(\d+\.\d{6}) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) (stdin|stdout|stderr) (\d+)\n"
)


def blocks(path):
    """The blocks of a file: times, direction, bytes; the notes."""
    data, found = path.read_bytes(), []
    while data:
        if data.startswith(b"#"):
            note, _, data = data.partition(b"\n")
            found.append((0.0, "note", note))
            continue
        header = HEADER.match(data)
        assert header, data[:100]
        end = header.end() + int(header[4])
        assert data[end : end + 1] == b"\n"
        found.append((float(header[1]), header[3].decode(), data[header.end() : end]))
        data = data[end + 1 :]
    return found


def stream(path, direction):
    return b"".join(data for _, kind, data in blocks(path) if kind == direction)


@pytest.fixture
def start(tmp_path):
    """Start `agent COMPONENT…` with `--debug-dir`."""
    started = []

    def start(*components, directory=tmp_path / "raw"):
        words = [shlex.join(each) for each in components]
        started.append(Editor(["agent", "--debug-dir", str(directory), *words]))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.wait()
        each._logger.join()
        for pipe in (each.process.stdin, each.process.stdout, each.process.stderr):
            pipe.close()


def end(editor):
    editor.process.stdin.close()
    editor.rest()
    editor.process.wait()


def test_bytes_of_all_streams_are_written_in_order_with_times(start, tmp_path):
    garbage = "printf 'no json \\377\\000\\n'; printf 'to stderr\\n' >&2; exec "
    editor = start(["sh", "-c", garbage + shlex.join(agent())])
    editor.open()
    pid = editor.pid
    assert editor.ask("echo again")
    end(editor)

    directory = tmp_path / "raw"
    assert directory.stat().st_mode & 0o777 == 0o700
    client, component = sorted(directory.iterdir(), key=lambda path: ".client." not in path.name)
    assert client.name == f"conductor.client.{pid}.0.raw"
    assert re.fullmatch(r"conductor\.[\w-]+\.\d+\.0\.raw", component.name)
    assert {path.stat().st_mode & 0o777 for path in (client, component)} == {0o600}
    assert stream(component, "stdout").startswith(b"no json \xff\x00\n{")
    assert b"to stderr\n" in stream(component, "stderr")
    sent = [json.loads(line)["method"] for line in stream(component, "stdin").splitlines()]
    assert sent == ["initialize", "session/new", "session/prompt"]
    asked = [json.loads(line)["method"] for line in stream(client, "stdin").splitlines()]
    assert asked == sent
    assert b'"end_turn"' in stream(client, "stdout")
    # The end of each stream that was read is a block without bytes.
    assert [kind for _, kind, data in blocks(client) if not data] == ["stdin"]
    assert {kind for _, kind, data in blocks(component) if not data} == {"stdout", "stderr"}
    for path in (client, component):
        times = [time for time, _, _ in blocks(path)]
        assert times == sorted(times)


def test_each_start_of_a_component_has_a_file(start, tmp_path):
    editor = start(agent("--back", "resume"))
    editor.open()
    editor.answer(editor.prompt("die 3"))
    assert editor.ask("echo again")
    end(editor)

    files = [path for path in (tmp_path / "raw").iterdir() if ".client." not in path.name]
    assert sorted(path.name.split(".")[3] for path in files) == ["0", "1"]
    assert len({path.name.split(".")[2] for path in files}) == 2
    assert all(b'"initialize"' in stream(path, "stdin") for path in files)


def test_a_directory_that_cannot_be_used_is_an_error_at_the_start(tmp_path):
    open_to_all = tmp_path / "open"
    open_to_all.mkdir(mode=0o755)
    (tmp_path / "file").touch()
    for place in (open_to_all, tmp_path / "file" / "below"):
        done = subprocess.run(
            [*CONDUCTOR, "agent", "--debug-dir", str(place), shlex.join(agent())],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

        assert done.returncode == 2
        assert f"--debug-dir {place}: " in done.stderr


def test_a_directory_that_disappears_costs_one_warning(start, tmp_path):
    editor = start(agent())
    editor.open()
    for path in (tmp_path / "raw").iterdir():
        path.unlink()
    (tmp_path / "raw").rmdir()

    assert [editor.ask("echo again") for _ in range(3)] == ["again"] * 3

    end(editor)
    editor._logger.join()
    assert len([line for line in editor.log if "written no more" in line]) == 1


def test_a_file_ends_with_a_note_at_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(raw_streams, "MAX_FILE", 1000)
    streams = raw_streams.RawStreams(tmp_path / "raw")
    streams.open()
    record = streams._open_file("a/../b", 7, 0)
    for _ in range(100):
        record("stdout", b"x" * 50)
    streams.close()

    (path,) = (tmp_path / "raw").iterdir()
    assert path.name == "chain.a-b.7.0.raw"
    assert path.stat().st_size <= 1100
    assert blocks(path)[-1][1:] == (
        "note",
        b"# limit of 1000 bytes reached: nothing more is written",
    )


def test_bytes_that_do_not_fit_into_the_queue_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(raw_streams, "_MAX_QUEUED", 199)
    streams = raw_streams.RawStreams(tmp_path / "raw")
    streams.open()
    record = streams._open_file("c", 7, 0)
    record("stdout", b"x" * 200)
    record("stdout", b"y")
    record("stdout", b"z")
    streams.close()

    (path,) = (tmp_path / "raw").iterdir()
    assert [(kind, data) for _, kind, data in blocks(path)] == [
        ("note", b"# 200 bytes dropped: they came faster than they were written"),
        ("stdout", b"y"),
        ("stdout", b"z"),
    ]


def test_each_client_of_a_server_and_each_of_its_components_has_a_file(tmp_path):
    chain = {"version": 1, "name": "served", "agent": {"name": "echo", "run": agent()}}
    (tmp_path / "served.yaml").write_text(json.dumps(chain))
    options = ["--listen", "127.0.0.1:0", "--debug-dir", "raw"]
    server = subprocess.Popen(
        [*CONDUCTOR, "serve", "served.yaml", *options],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    with server:
        announced = next(line for line in server.stderr if "listening on " in line)
        url = announced.partition("listening on ")[2].strip().replace("http:", "ws:")
        (tmp_path / "remote.yaml").write_text(f"version: 1\nagent:\n  connect: {url}\n")
        for text in ("echo first", "echo second"):
            prompt = [*CONDUCTOR, "prompt", "remote.yaml", text]
            subprocess.run(prompt, cwd=tmp_path, capture_output=True, timeout=60, check=True)
        server.terminate()
        server.stderr.read()

    files = sorted((tmp_path / "raw").iterdir())
    clients = [path for path in files if ".client." in path.name]
    assert [path.name for path in clients] == [
        f"served.client.{server.pid}.{number}.raw" for number in (0, 1)
    ]
    components = [path for path in files if path not in clients]
    assert all(re.fullmatch(r"served\.echo\.\d+\.0\.raw", path.name) for path in components)
    assert len(components) == 2
    for some in (clients, components):
        sent = [stream(path, "stdin") for path in some]
        assert sorted((b"first" in data, b"second" in data) for data in sent) == [
            (False, True),
            (True, False),
        ]
    assert (tmp_path / "raw").stat().st_mode & 0o777 == 0o700


@pytest.fixture
def streams(tmp_path):
    streams = raw_streams.RawStreams(tmp_path / "raw")
    streams.open()
    yield streams
    streams.close()


@pytest.mark.fast
def test_the_queue_takes_more_once_it_is_written(streams, tmp_path, monkeypatch):
    monkeypatch.setattr(raw_streams, "_MAX_QUEUED", 200)
    record = streams._open_file("c", 7, 0)
    path = tmp_path / "raw" / "chain.c.7.0.raw"
    for number in range(20):
        data = b"%03d" % number * 20
        record("stdout", data)
        end = time.monotonic() + 30
        while data not in path.read_bytes():
            assert time.monotonic() < end, number
            os.sched_yield()

    assert [(kind, data[:3]) for _, kind, data in blocks(path)] == [
        ("stdout", b"%03d" % number) for number in range(20)
    ]


@pytest.mark.fast
def test_a_file_of_the_same_name_is_kept(streams, tmp_path):
    for word in (b"old", b"new"):
        streams._open_file("c", 7, 0)("stderr", word)
    streams.close()

    names = ["chain.c.7.0-1.raw", "chain.c.7.0.raw"]
    assert sorted(os.listdir(tmp_path / "raw")) == names
    assert [stream(tmp_path / "raw" / name, "stderr") for name in names] == [b"new", b"old"]


@pytest.mark.fast
async def test_only_what_the_pipe_took_is_recorded(streams, tmp_path):
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    recorded = raw_streams._RecordedTransport(
        FdTransport(reading, writing), streams._open_file("c", 7, 0), read="stdin", written="stdout"
    )
    data = bytes(range(256)) * 16 * 1024
    taken = recorded.write_now([data, data])
    refused = recorded.write_now([b"more"])
    streams.close()
    recorded.close()

    path = tmp_path / "raw" / "chain.c.7.0.raw"
    assert 0 < taken < len(data)
    assert refused == 0
    assert blocks(path) == [(blocks(path)[0][0], "stdout", data[:taken])]


def test_without_the_option_nothing_is_imported():
    script = "import sys, conductor.chain.launchers, conductor.cli.run, conductor.chain.chain; "
    script += "print('conductor.control.raw_streams' in sys.modules)"
    assert subprocess.check_output([*python("x")[:1], "-c", script], text=True) == "False\n"
