"""Lines of the log."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from conductor import log
from conductor.secrets.masking import register_secrets

PROGRAM = """
from conductor import log
from conductor.secrets.masking import register_secrets
log.configure("info", as_json={as_json})
logger = log.get_logger(component="\\x1bc")
logger.warning("unknown method", method="\\x1b]52;c;ZXZpbA==\\x07", title="\\u202e\\x9b31m")
try:
    raise ValueError("\\x1b[2J")
except ValueError:
    logger.error("failed", exc_info=True)
"""


def test_texts_of_peers_do_not_control_a_terminal():
    """Texts without a space are written as they are, by the renderer for people."""
    for as_json in (False, True):
        program = PROGRAM.format(as_json=as_json)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

        assert "]52;c;ZXZpbA==" in done.stderr
        assert not set("\x1b\x07\x9b\u202e") & set(done.stderr)


def flood(capfd, monkeypatch):
    """Write events of two components as JSON; returns those of the trace and those of stderr."""
    traced, now = [], 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr(log, "_listener", lambda *event: traced.append(event))
    log.configure("warning", as_json=True)
    for n in range(1000):
        log.get_logger(component="agent").warning("malformed message", detail=f"{n}" + "x" * 50_000)
    log.get_logger(component="other").warning("malformed message")
    now += 1
    log.get_logger().error("failed")
    log.get_logger(component="agent").warning("malformed message")
    return traced, [json.loads(line) for line in capfd.readouterr().err.splitlines()]


def test_equal_events_are_written_20_times_a_second_and_the_others_counted(capfd, monkeypatch):
    traced, lines = flood(capfd, monkeypatch)

    assert [line["event"] for line in lines] == [
        *["malformed message"] * 21,
        "log events left out",
        "failed",
        "malformed message",
    ]
    counted = {"component": "agent", "what": "malformed message", "skipped": 980}
    assert counted.items() <= lines[21].items()
    assert lines[20]["component"] == "other"
    assert all(len(json.dumps(line)) < 10_000 for line in lines)
    assert [event for _, event, _ in traced] == [line["event"] for line in lines]


@pytest.mark.parametrize(
    "end", ["", "from conductor.chain.stdio_server import exit_now; exit_now(0)"], ids=["", "now"]
)
def test_what_was_left_out_is_counted_at_the_end_of_the_process(end):
    program = f"""
from conductor import log
log.configure("warning", as_json=True)
for n in range(500):
    log.get_logger().warning("malformed message", number=n)
{end}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert len(lines) < 250
    *written, last = lines
    assert last["event"] == "log events left out"
    assert len(written) + last["skipped"] + sum(line.get("skipped", 0) for line in written) == 500


def test_a_long_text_is_cut_and_no_part_of_a_secret_stays(capfd):
    register_secrets(["sk-0123456789"])
    log.configure("warning", as_json=True)
    log.get_logger().warning("failed", error="x" * 4090 + "sk-0123456789" + "y" * 9000)

    (line,) = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert len(line["error"]) < 9000
    assert "sk-" not in line["error"]


def test_a_library_writes_to_the_same_log_with_its_limit(capfd):
    log.configure("warning", as_json=True)
    register_secrets(["a-secret-value"])
    library = logging.Logger("mcp.client")  # without the handlers of the test runner
    library.info("not shown")
    library.warning("%s values %s", "a-secret-value")
    for _ in range(1000):
        try:
            raise ValueError("a-secret-value is no JSON")
        except ValueError:
            library.exception("cannot read %s", "message")

    first, *lines = map(json.loads, capfd.readouterr().err.splitlines())
    assert (first["level"], first["text"]) == ("warning", "%s values %s")
    assert 20 <= len(lines) < 500
    told = {(line["component"], line["level"], line["text"], line["error"]) for line in lines}
    assert told == {("mcp.client", "error", "cannot read message", "ValueError: *** is no JSON")}
