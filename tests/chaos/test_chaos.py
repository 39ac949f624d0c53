"""Every kind of component fails in every way in every state, and the invariants hold.

One answer for each request, order within a session, no hang (of `PATIENCE` seconds), nothing left
behind (the fixtures see to that), memory under the budget, and where the component can be started
again, or was not harmed, the next prompt works. All combinations run with `--long`; by default
each fault meets one state, and each state one fault.
"""

from itertools import product

import pytest
from support.peers.process import agent, chunk, peak

FAULTS = ("kill", "stop", "exit0", "exit1", "close-stdout", "half-line", "garbage", "flood",
          "silent")  # fmt: skip
STATES = ("start", "initialize", "idle", "prompt", "permission", "tool", "eof")
HANGS = ("stop", "silent")
BUDGET = 64 * 1024 * 1024

PLUGIN = """
import attrs
from conductor.proxy import Proxy, on

@attrs.define
class Pass(Proxy):
    @on("session/prompt")
    async def prompt(self, params: dict, forward):
        return await forward(params)
"""


def chain(kinds, target, fault, when, tmp_path):
    """The agent's and the proxies' specs: these kinds of proxies, one component of which fails."""
    flags = ["--fault", fault, "--at", when, "--once", str(tmp_path / "once")]
    hangs_at_start = fault in HANGS and when in ("start", "initialize")

    def times(is_bad):
        # On a busy machine, a start takes longer than a test may wait for one that hangs.
        start_timeout = "1s" if is_bad and hangs_at_start else "30s"
        return {"start_timeout": start_timeout, "stop_timeout": "0.6s"}

    module = tmp_path / "passing.py"
    module.write_text(PLUGIN)
    specs = []
    for index, kind in enumerate(kinds):
        bad = flags if index == target else ["--fault", "kill", "--at", "_never"]
        # One that knows both dialects is healthy again when it is started for the other one.
        dialect = "both" if kind == "proxy" else kind
        run = agent("--proxy", "--name", f"p{index}", "--dialect", dialect, *bad)
        what = {"use": f"{module}:Pass"} if kind == "plugin" else {"run": run}
        specs.append({**what, "name": f"p{index}", **times(index == target)})
    bad = flags if target == len(kinds) else []
    run = agent("--back", "resume", *bad)
    return {"run": run, "name": "agent", **times(target == len(kinds))}, specs


def cases():
    """Chains of 0 to 4 proxies; each component in each of them that is a process fails."""
    shapes = [(), ("proxy",), ("_proxy",), ("plugin",), ("proxy", "_proxy"), ("plugin", "proxy"),
              ("_proxy", "plugin", "proxy"), ("proxy", "plugin", "_proxy", "proxy")]  # fmt: skip
    for kinds, fault, state in product(shapes, FAULTS, STATES):
        for target in range(len(kinds) + 1):
            if target == len(kinds) or kinds[target] != "plugin":
                yield kinds, target, fault, state


def is_short(kinds, target, fault, state):
    """A Latin square over one chain: every fault, every state, both roles."""
    if kinds != ("plugin", "proxy") and kinds != ("_proxy", "plugin", "proxy"):
        return False
    number = FAULTS.index(fault) + STATES.index(state)
    who = (1, 2) if len(kinds) == 2 else (0,)
    return target in who and number % 9 == (0, 4, 7)[target]


@pytest.mark.parametrize(
    ("kinds", "target", "fault", "state"),
    [pytest.param(*case, marks=() if is_short(*case) else pytest.mark.long) for case in cases()],
    ids=lambda value: ("+".join(value) or "none") if isinstance(value, tuple) else str(value),
)
def test_a_component_fails(run_chain, tmp_path, kinds, target, fault, state):
    when = state if state in ("start", "initialize", "eof") else "_fault"
    spec, proxies = chain(kinds, target, fault, when, tmp_path)
    editor = run_chain(spec, *proxies, log="error")
    asked, answered = record(editor)

    answer = editor.answer(editor.request("initialize", protocolVersion=1, clientCapabilities={}))
    initialized = "result" in answer
    if initialized:
        base = peak(editor.pid)
        new = editor.answer(editor.request("session/new", cwd="/", mcpServers=[]))
        assert "result" in new
        reach(editor, state)
        if when == "_fault":
            editor.send({"method": "_fault", "params": {}})
        if state != "eof" and fault not in HANGS:
            check_that_it_works_again(editor)
        assert peak(editor.pid) - base < BUDGET
    else:
        assert state in ("start", "initialize")
        assert fault not in ("garbage", "flood"), answer
        assert answer["error"]["data"]["component"] in ("agent", f"p{target}")
    editor.close_stdin()
    editor.rest()

    assert sorted(answered) == sorted(asked)  # each once, and nothing else
    assert editor.wait() == (0 if initialized else 3)


def record(editor):
    """The ids of the requests that are sent, and of the answers that come, from now on."""
    asked, answered = [], []
    request, read = editor.request, editor.read

    def recorded_request(*args, **params):
        asked.append(request(*args, **params))
        return asked[-1]

    def recorded_read():
        message = read()
        if message is not None and "id" in message and "method" not in message:
            answered.append(message["id"])
        return message

    editor.request, editor.read = recorded_request, recorded_read
    return asked, answered


def reach(editor, state):
    """Bring the agent's turn to a state."""
    match state:
        case "prompt":
            editor.prompt("wait")
            editor.next(chunk)
        case "permission":
            editor.prompt("perm")
            editor.next(lambda message: message.get("method") == "session/request_permission")
        case "tool":
            editor.prompt("tool")
            editor.next(lambda message: message.get("method") == "session/update")


def check_that_it_works_again(editor):
    """After at most as many failures as the restart budget allows, prompts work, in order."""
    editor.send({"method": "session/cancel", "params": {"sessionId": "s1"}})
    answer = None
    for attempt in range(20):
        before = len(editor.others)
        answer = editor.answer(editor.prompt("stream 5 20"))
        if "error" not in answer:
            said = [chunk(message) for message in editor.others[before:]]
            numbers = [text[:8] for text in said if text[:8].isdigit()]
            assert numbers[-5:] == [f"{number:08d}" for number in range(5)]
            assert attempt or len(numbers) == 5  # of a turn that was cut, some may come late
            return
        assert answer["error"]["code"] == -32603
        assert answer["error"]["data"]["component"], answer
    raise AssertionError(f"no prompt works any more: {answer}")
