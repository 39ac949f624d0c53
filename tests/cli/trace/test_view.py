"""`acp-conductor trace view`, as a process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from contextlib import contextmanager
from urllib.request import Request, urlopen

import pytest
from support.trace_records import TraceScript

from cli.conftest import COMMAND, PATIENCE


@pytest.fixture
def trace(tmp_path):
    script = TraceScript()
    script.update("agent>notes", "one")
    return script.write(tmp_path / "t.jsonl")


@contextmanager
def start(*arguments, **settings):
    command = [*COMMAND, "trace", "view", *map(str, arguments)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **settings)
    with process:
        try:
            yield process
            process.wait(PATIENCE)
        finally:
            process.kill()


def printed_url(process):
    found = re.fullmatch(
        r"acp-conductor: view at (http://127\.0\.0\.1:\d+/)#token=(\S+)\n",
        process.stderr.readline(),
    )
    assert found
    return found.groups()


def test_the_url_shows_the_trace_until_ctrl_c(trace):
    with start(trace, "--no-browser") as process:
        url, token = printed_url(process)
        headers = {"Authorization": f"Bearer {token}"}
        with urlopen(Request(f"{url}api/rows?wait", headers=headers), timeout=PATIENCE) as page:
            assert json.load(page)["name"] == "t.jsonl"
        process.send_signal(signal.SIGINT)

        assert (process.wait(PATIENCE), process.stderr.read()) == (0, "")


def test_a_browser_is_opened_with_a_code_and_not_with_the_token(trace, tmp_path):
    opened, browser = tmp_path / "opened", tmp_path / "browser"
    os.mkfifo(opened)
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    with start(trace, env={**os.environ, "BROWSER": str(browser)}) as process:
        given = opened.read_text().strip()
        url, token = printed_url(process)
        assert token not in given
        assert given.startswith(f"{url}#code=")
        process.send_signal(signal.SIGINT)


def test_it_ends_with_the_conductor_that_started_it(trace):
    with start(trace, "--no-browser", "--live", stdin=subprocess.PIPE) as process:
        printed_url(process)
        process.stdin.close()

        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("words", [["missing.jsonl"], ["missing/t.jsonl", "--no-browser"]])
def test_a_missing_file_is_a_usage_error(run, words):
    result = run("trace", "view", *words)

    assert result.returncode == 2
    assert f"{words[0]}: No such file or directory" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["why", "FILE", "3"],
        ["replay", "FILE", "--as", "agent"],
        ["view", "FILE", "--no-browser"],
    ],
    ids=" ".join,
)
def test_a_file_that_is_no_trace_is_a_usage_error_of_every_command(run, tmp_path, words):
    path = tmp_path / "notes.md"
    path.write_text("# notes\n")
    result = run("trace", *[path if word == "FILE" else word for word in words])

    assert result.returncode == 2
    assert result.stderr.count("notes.md:1: not a record of a trace: ") == 1
    assert "Trace files are written by `--trace FILE`." in result.stderr


def test_a_line_that_is_no_record_is_reported_on_the_terminal(trace):
    good = trace.read_bytes()
    trace.write_bytes(good + b"no record\n")
    number = good.count(b"\n") + 1
    with start(trace, "--no-browser") as process:
        said = {process.stderr.readline(), process.stderr.readline()}
        process.send_signal(signal.SIGINT)

    (report,) = (line for line in said if "view at" not in line)
    assert f"t.jsonl:{number}: not a record of a trace" in report
    assert "only what comes before is shown" in report


def test_a_port_in_use_is_a_usage_error(run, trace):
    with start(trace, "--no-browser") as process:
        port = printed_url(process)[0].rpartition(":")[2].strip("/")
        result = run("trace", "view", trace, "--port", port)
        process.send_signal(signal.SIGINT)

    assert result.returncode == 2
    assert f"--port {port}: " in result.stderr
