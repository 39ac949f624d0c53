"""A failing test of a proxy leads with the mistake, as pytest shows it: run in pytest itself."""

from __future__ import annotations

import re

import pytest

from conductor.errors import RequestError
from conductor.testing.failures import readable

pytest_plugins = ["pytester"]

HEAD = """\
from conductor.proxy import Proxy, RequestError, on_prompt, on_text
from conductor.testing import FakeAgent


async def turn(acp_chain, *parts, version=1, strict=True):
    async with acp_chain(*parts, strict=strict) as client:
        await client.initialize(version=version)
        await client.prompt_turn(await client.new_session("/project"), "hi")
"""


@pytest.fixture
def shown(pytester, monkeypatch):
    """Run one test after `HEAD`; return what pytest shows of its failure."""

    def run(body, *arguments):
        pytester.makepyfile(test_it=f"{HEAD}\n\n{body}")
        result = pytester.runpytest_inprocess("-o", "trio_mode=true", "--color=no", *arguments)
        result.assert_outcomes(failed=1)
        text = result.stdout.str()
        failure = text[text.index("= FAILURES =") : text.index("= short test summary")]
        return failure.partition("- Captured std")[0]

    return run


def errors(failure):
    """The lines of pytest that tell what was raised."""
    return [line.removeprefix("E").strip() for line in failure.splitlines() if line[:1] == "E"]


def files(failure):
    """The places of the shown frames."""
    return re.findall(r"^(\S+\.py:\d+): ", failure, re.MULTILINE)


def test_a_wrong_step_is_shown_in_the_line_of_the_script(shown):
    failure = shown(
        "async def test_it(acp_chain):\n    await turn(acp_chain, FakeAgent(turns=[[5]]))"
    )

    (error,) = errors(failure)
    assert "step 1 of turn 1 of the FakeAgent is 5 (int). A step is" in error
    assert files(failure) == ["test_it.py:12"]
    assert "Exception Group" not in failure


@pytest.mark.parametrize("version", [1, 2])
def test_an_assertion_in_a_step_is_shown_with_its_values_and_the_step(shown, version):
    failure = shown(f"""\
async def step(session):
    assert session == "other"

async def test_it(acp_chain):
    agent = FakeAgent(turns=[["a"], ["b", step]])
    agent.turns.pop(0)
    await turn(acp_chain, agent, version={version})
""")

    first, *_, last = errors(failure)
    assert first == "AssertionError: assert 'session-1' == 'other'"
    place = "the FakeAgent (step, test_it.py:11)"
    assert last == f"Raised in step 2 of turn 1 of {place}"
    assert files(failure) == ["test_it.py:17", "test_it.py:6", "test_it.py:12"]
    assert "Exception Group" not in failure


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("lambda session: 'text'", "(<lambda>, test_it.py:12) returned 'text'. Write a text or"),
        ("{'sessionUpdate': 'plan', 'entries': object()}", "of the FakeAgent cannot be sent: Type"),
    ],
)
def test_a_mistake_that_shows_when_the_step_is_played(shown, step, expected):
    failure = shown(
        f"async def test_it(acp_chain):\n    await turn(acp_chain, FakeAgent(turns=[[{step}]]))"
    )

    assert expected in errors(failure)[0]
    assert files(failure) == ["test_it.py:12", "test_it.py:6"]


def test_an_assertion_in_a_handler_of_the_agent(shown):
    failure = shown("""\
def new(params):
    assert params["cwd"] == "/other"

async def test_it(acp_chain):
    await turn(acp_chain, FakeAgent(handlers={"session/new": new}))
""")

    assert errors(failure)[0] == "AssertionError: assert '/project' == '/other'"
    assert files(failure) == ["test_it.py:15", "test_it.py:6", "test_it.py:12"]
    assert "Exception Group" not in failure


def test_an_assertion_in_a_handler_of_the_client(shown):
    failure = shown("""\
def ask(params):
    assert params["options"] == []

async def test_it(acp_chain):
    agent = FakeAgent()
    agent.turns = [[lambda session: agent.ask(session, {"toolCallId": "1", "title": "Edit"})]]
    async with acp_chain(agent) as client:
        client.handlers["session/request_permission"] = ask
        await client.initialize()
        await client.prompt(await client.new_session("/project"), "hi")
""")

    assert errors(failure)[0].startswith("AssertionError: assert [{")
    assert files(failure) == ["test_it.py:17", "test_it.py:12"]


PROXY = """\
class Broken(Proxy):
    @on_prompt
    async def handle(self, session, prompt, forward):
        raise KeyError("nope")

async def test_it(acp_chain):
    await turn(acp_chain, Broken(), strict={strict})
"""


def test_the_exception_of_a_proxy_is_shown_in_its_line(shown):
    failure = shown(PROXY.format(strict=True))

    assert errors(failure) == ["KeyError: 'nope'"]
    assert files(failure) == ["test_it.py:17", "test_it.py:6", "test_it.py:14"]
    assert "Exception Group" not in failure
    assert "Cancelled" not in failure


def test_without_strict_the_error_names_what_was_logged(shown):
    failure = shown(PROXY.format(strict=False))

    error, note = errors(failure)
    assert error == (
        "conductor.errors.RequestError: Broken failed in on_prompt: KeyError: 'nope' "
        "(test_it.py:14) (-32603)"
    )
    assert re.fullmatch(
        r"A proxy raised before: KeyError: 'nope' \(\S+test_it.py:12\)\. "
        r"acp_chain\(…, strict=True\) raises it here",
        note,
    )
    assert files(failure) == ["test_it.py:17", "test_it.py:8"]


def test_a_failing_assertion_of_a_test_has_its_values(shown):
    failure = shown("""\
async def test_it(acp_chain):
    async with acp_chain() as client:
        await client.initialize()
        assert client.transcript.labels == ["other"]
""")

    assert errors(failure)[0] == "AssertionError: assert ['answer to initialize'] == ['other']"
    assert files(failure) == ["test_it.py:14"]


def test_full_trace_shows_all_frames(shown):
    failure = shown(PROXY.format(strict=True), "--full-trace")

    assert "dispatch.py" in failure
    assert errors(failure)[-1] == "KeyError: 'nope'"


def test_several_exceptions_and_failures_of_the_conductor_keep_what_they_have():
    both = ExceptionGroup("both", [ValueError("a"), RequestError(1, "b")])
    assert readable(both) is both

    def fail():
        readable(None)  # an error in the conductor itself

    with pytest.raises(AttributeError) as caught:
        fail()
    before = [each.name for each in caught.traceback]
    shown = readable(ExceptionGroup("one", [caught.value]))
    assert shown is caught.value
    after = [each.name for each in pytest.ExceptionInfo.from_exception(shown).traceback]
    assert after == before
