"""A component that cannot start fails `initialize` with an explanation, and nothing else."""

import signal
from pathlib import Path

import pytest
from support.peers.process import agent, proxy

STATUS = {"exitStatus": "exited with status 3", "stderr": ["leaving at once with 3"]}
DENIED = {"exitStatus": "was ended by SIGKILL"}


def not_executable(directory: Path) -> str:
    path = directory / "no-mode"
    path.write_text("#!/bin/sh\n")
    return str(path)


def no_program(directory: Path) -> str:
    path = directory / "no-program"
    path.write_bytes(b"\x00\x01\x02")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("component", "reason", "more"),
    [
        ({"run": ["no-such-program"]}, "command not found: no-such-program (PATH is ", {}),
        ({"run": ["{dir}/absent"]}, "no such file: {dir}/absent", {}),
        ({"run": ["{mode}"]}, "not executable: {mode}", {}),
        ({"run": ["{dir}"]}, "not executable: {dir}", {}),
        ({"run": ["{format}"]}, "{format}: Exec format error", {}),
        (
            {"run": agent(), "cwd": "{dir}/absent"},
            "its working directory does not exist: {dir}/absent",
            {},
        ),
        (
            {"run": ["/bin/false"]},
            "it exited with status 1",
            {"exitStatus": "exited with status 1"},
        ),
        ({"run": ["/bin/true"]}, "it exited with status 0", {"exitStatus": "exited with status 0"}),
        ({"run": agent("--exit-at-start", 3)}, "it exited with status 3", STATUS),
        (
            {"run": agent("--exit-on", "initialize", "--signal", int(signal.SIGKILL))},
            "it was ended by SIGKILL",
            DENIED,
        ),
        ({"run": agent("--close-stdout-on", "initialize")}, "it closed its stdout", {}),
        (
            {"run": agent("--hang-on", "initialize"), "start_timeout": "300ms"},
            "it did not answer `initialize` within 0.3 s (start_timeout)",
            {},
        ),
    ],
)
def test_initialize_is_answered_with_the_reason_and_may_be_tried_again(
    start_file, tmp_path, component, reason, more
):
    places = {
        "{dir}": str(tmp_path),
        "{mode}": not_executable(tmp_path),
        "{format}": no_program(tmp_path),
    }

    def filled(text):
        for name, value in places.items():
            text = text.replace(name, value)
        return text

    component = {**component, "run": [filled(word) for word in component["run"]]}
    component |= {"cwd": filled(component["cwd"])} if "cwd" in component else {}
    editor = start_file({"name": "helper", **component}, proxy("p"))

    for answer in (editor.initialize(), editor.initialize()):
        error = answer["error"]
        assert error["code"] == -32603
        assert error["message"].startswith(f"component 'helper' did not start: {filled(reason)}")
        data = error["data"]
        place = data.pop("place")
        assert data.pop("reason") in error["message"]
        assert data == {"component": "helper", "command": component["run"]} | more
        path, line, column = place.rsplit(":", 2)
        assert (path, int(column) > 1) == (str(tmp_path / "chain.yaml"), True)
        assert component["run"][0] in Path(path).read_text().splitlines()[int(line) - 1]
    assert editor.answer(editor.request("session/new"))["error"]["code"] == -32600
    assert editor.leave() == 3


@pytest.mark.parametrize(
    ("proxies", "last", "name"),
    [
        pytest.param([["cat"]], agent(), "cat", marks=pytest.mark.fast),
        ([], ["cat"], "cat"),
        ([agent()], agent(), "echo_agent"),
    ],
)
def test_a_program_that_is_no_such_component_is_named_at_once(start_agent, proxies, last, name):
    editor = start_agent(*proxies, last)

    error = editor.initialize()["error"]

    assert (error["code"], error["data"]["component"]) == (-32603, name)
    assert editor.leave() == 3


def test_the_last_lines_of_stderr_are_in_the_error(start_file):
    lines = "".join(f"echo line {number} >&2; " for number in range(50))
    editor = start_file(["/bin/sh", "-c", f"{lines} printf '\\033[31mred\\033[0m' >&2; exit 9"])

    data = editor.initialize()["error"]["data"]

    assert data["stderr"] == [*(f"line {number}" for number in range(31, 50)), "red"]
    assert editor.leave() == 3


def test_a_component_that_starts_the_second_time_is_used(start_file, tmp_path):
    once = f'test -e {tmp_path}/tried || {{ touch {tmp_path}/tried; exit 1; }}; exec "$@"'
    editor = start_file(["/bin/sh", "-c", once, "sh", *agent()])
    assert "error" in editor.initialize()

    editor.open()

    assert editor.ask("echo hello") == "hello"
    assert editor.leave() == 0


@pytest.mark.fast
def test_garbage_before_and_between_messages_is_skipped(start_agent):
    editor = start_agent(proxy("p"), agent("--garbage"))
    editor.open()

    assert editor.ask("echo hello") == "p>[p]hello"
    assert editor.leave() == 0
