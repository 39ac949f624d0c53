"""`acp-conductor try`: what a proxy did with each message, from the outside."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from support.doc_snippets import ROOT, snippets
from support.try_notes import NOTES

REPORT = """\
notes.py: Notes, with the test agent
→ initialize #1
← answer to initialize #1
→ session/new #2 {"cwd": …
← answer to session/new #2 {"sessionId": "session-1", "modes": …
← session/update available_commands_update /help /say /echo /think /stream /ask /read /write …
    hide (notes.py:20)
    dropped, the client does not get it

→ session/prompt #3 "say hello\\ntool Search\\nask Edit a file"
    add_note (notes.py:11)
    changed on its way to the agent:
      + prompt[0]: {"type": "text", "text": "Be kind."}
← session/update agent_message_chunk "hello"
    shout (notes.py:16)
    changed on its way to the client:
      - update.content.text: "hello"
      + update.content.text: "HELLO"
← session/update tool_call call-1-1 Search other pending
← session/update tool_call_update call-1-1 in_progress
← session/update tool_call_update call-1-1 completed
← session/update tool_call call-1-2 Edit a file edit pending
← session/request_permission #4 "Edit a file" (allow, always, reject)
    ask (notes.py:24)
    answer of the proxy to session/request_permission #4: \
{"outcome": {"outcome": "selected", "optionId": "reject"}}
← session/update tool_call_update call-1-2 failed
← session/update agent_message_chunk "Edit a file: reject\\n"
    shout (notes.py:16)
    changed on its way to the client:
      - update.content.text: "Edit a file: reject\\n"
      + update.content.text: "EDIT A FILE: REJECT\\n"
← answer to session/prompt #3 {"stopReason": "end_turn"}
    count (notes.py:28)
    sent to the client: session/update agent_message_chunk "that was it"
"""


def test_the_report_shows_message_by_message_what_the_proxy_did(run, write):
    result = run("try", write(NOTES))

    assert result.stderr == ""
    shown = re.sub(r'("modes": |"cwd": ).*', r"\1…", result.stdout)
    assert shown == REPORT
    assert result.returncode == 0


def test_the_report_in_the_documentation_is_that_of_a_run(run, tmp_path):
    program, _, shown = [each.text for each in snippets(ROOT / "docs" / "testing.md")][:3]
    (tmp_path / "notes.py").write_text(program)

    result = run("try", "notes.py", "--prompt", "ask Edit a file")

    assert result.stdout.endswith(f"\n\n{shown}")


def test_a_proxy_that_does_nothing_passes_everything_on(run, write):
    result = run("try", write("class Nothing(Proxy):\n    pass\n"), "--prompt", "say x")

    assert "    " not in result.stdout
    assert result.stdout.splitlines()[-3:] == [
        '→ session/prompt #3 "say x"',
        '← session/update agent_message_chunk "x"',
        '← answer to session/prompt #3 {"stopReason": "end_turn"}',
    ]


def test_text_that_a_filter_held_back_is_a_message_of_the_proxy(run, write):
    """Not a change of the tool call before which it is sent."""
    name = write(
        """class Kept:
    def feed(self, text):
        return ""

    def end(self):
        return "kept"


class Keeps(Proxy):
    @text_filter("agent")
    def keep(self, session):
        return Kept()
"""
    )
    result = run("try", name, "--prompt", "say x\ntool Search")

    assert (
        """← session/update tool_call call-1-1 Search other pending
    sent to the client: session/update agent_message_chunk "kept"
← session/update tool_call_update"""
        in result.stdout
    )
    assert "changed" not in result.stdout.partition("→ session/prompt")[2]


@pytest.mark.slow
def test_slash_commands_and_tools_are_shown(run, write):
    name = write(
        """class Adder(Proxy):
    @slash("sum", "Add")
    async def sum(self, session, arguments):
        return "3"

    @tool
    async def add(self, a: int) -> str:
        '''Add one.'''
        return str(a + 1)
"""
    )
    result = run("try", name, "--prompt", "/sum 1 2", "--prompt", 'call Adder add {"a": 1}')

    shown = result.stdout.partition("→ session/prompt")[2]
    assert (
        """"/sum 1 2"
    sum (notes.py:6)
    sent to the client: session/update agent_message_chunk "3"
    answer of the proxy to session/prompt #3: {"stopReason": "end_turn"}
"""
        in shown
    )
    assert (
        """← mcp/message #5 tool add {"a": 1}
    add (notes.py:10)
    answer of the proxy to mcp/message #5: {"content": [{"text": "2", """
        in shown
    )
    assert result.returncode == 0


def test_wire_methods_and_messages_of_the_proxy_itself_are_shown(run, write):
    name = write(
        """class Wire(Proxy):
    @on("session/prompt")
    async def twice(self, params, forward):
        await forward(params)
        self.start_soon(self.later, params["sessionId"])
        return await forward({**params, "prompt": [{"type": "text", "text": "say again"}]})

    @on("session/update")
    async def drop(self, params, forward):
        if "again" not in str(params):
            return
        await forward()

    async def later(self, session):
        await self.agent.notify("_wire/later", {"x": 1})
"""
    )
    shown = run("try", name, "--prompt", "say once").stdout.partition("→ session/prompt")[2]

    assert (
        """ #3 "say once"
    twice (notes.py:6)
← session/update agent_message_chunk "once"
    drop (notes.py:12)
    dropped, the client does not get it
← answer to session/prompt #3 {"stopReason": "end_turn"}
    changed on its way to the agent:
      - prompt[0].text: "say once"
      + prompt[0].text: "say again"
"""
        in shown
    )
    assert '    sent to the agent: _wire/later {"x": 1}\n' in shown
    assert '"again"\n    drop (notes.py:12)\n←' in shown


def test_an_observer_is_shown_below_the_message(run, write):
    name = write(
        """class Seeing(Proxy):
    @on("*")
    async def see(self, message):
        pass

    @on("session/prompt")
    async def prompt(self, params, forward):
        return await forward()
"""
    )
    shown = run("try", name, "--prompt", "say x").stdout.partition("→ session/prompt")[2]

    assert (
        shown
        == """ #3 "say x"
    see (notes.py:6)
    prompt (notes.py:10)
← session/update agent_message_chunk "x"
    see (notes.py:6)
← answer to session/prompt #3 {"stopReason": "end_turn"}
    see (notes.py:6)
"""
    )


@pytest.mark.parametrize("protocol", [pytest.param("1", marks=pytest.mark.slow), "2"])
def test_an_exception_is_shown_with_its_place(run, write, protocol):
    name = write(
        """class Failing(Proxy):
    @on_prompt
    async def fail(self, session, prompt, forward):
        self.helper({})

    def helper(self, values):
        return values["missing"]
"""
    )
    result = run("try", name, "--protocol", protocol)

    assert (
        """    fail (notes.py:6)
    KeyError: 'missing'
      notes.py:8 in fail: self.helper({})
      notes.py:11 in helper: return values["missing"]
    error of the proxy to session/prompt #3: {"code": -32603, """
        in result.stdout
    )
    assert result.stderr == ""
    assert result.returncode == 1


@pytest.mark.slow
def test_all_exceptions_of_a_nursery_are_shown(run, write):
    name = write(
        """import trio


class Failing(Proxy):
    @on_prompt
    async def fail(self, session, prompt, forward):
        await forward()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.one)
            nursery.start_soon(self.two)

    async def one(self):
        raise ValueError("one")

    async def two(self):
        raise KeyError("two")
"""
    )
    shown = run("try", name).stdout

    assert '      ValueError: one\n        notes.py:17 in one: raise ValueError("one")\n' in shown
    assert "      KeyError: 'two'\n" in shown
    assert "    error of the proxy to session/prompt #3: " in shown


@pytest.mark.slow
def test_an_answer_in_place_of_an_error_is_one_of_the_proxy(run, write):
    """Not a change of the error: its members say nothing about those of the answer."""
    name = write(
        """from conductor.errors import RequestError


class Forgiving(Proxy):
    @on("session/prompt")
    async def forgive(self, params, forward):
        try:
            return await forward()
        except RequestError:
            return {"stopReason": "end_turn"}
"""
    )
    shown = run("try", f"{name}:Forgiving", "--prompt", "fail 7").stdout

    assert "← error of session/prompt #3 {" in shown
    assert '    answer of the proxy to session/prompt #3: {"stopReason": "end_turn"}' in shown


def test_the_end_of_the_reader_ends_the_run(write, tmp_path):
    command = f"{sys.executable} -m conductor try {write(NOTES)} | head -2"
    result = subprocess.run(
        ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert result.stdout == "".join(REPORT.splitlines(keepends=True)[:2])
    assert (result.stderr, result.returncode) == ("", 141)


def test_an_answer_that_is_no_object_fails_the_run(run, write):
    """A wire handler may answer anything; the client of `try` says what is wrong with it."""
    file = write(
        """class Notes(Proxy):
    @on("session/prompt")
    async def list(self, params, forward):
        return [1]
"""
    )
    done = run("try", file)

    assert done.returncode == 1
    assert "its answer to session/prompt is a list, not an object" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_an_exception_of_an_event_handler_fails_the_run(run, write):
    name = write(
        """class Failing(Proxy):
    @on_turn_end
    async def count(self, session, end):
        raise ValueError("cannot count")
"""
    )
    result = run("try", name)

    assert (
        """← answer to session/prompt #3 {"stopReason": "end_turn"}
    count (notes.py:6)
    ValueError: cannot count
      notes.py:8 in count: raise ValueError("cannot count")
"""
        in result.stdout
    )
    assert result.returncode == 1


def test_options_are_given(run, write):
    name = write(
        """@attrs.define
class Options(Proxy):
    texts: list[str]
    times: int

    @on_prompt
    async def add(self, session, prompt, forward):
        return await prompt.answer(" ".join(self.texts * self.times))
"""
    )
    result = run("try", name, "--with", 'texts=["a", "b"]', "--with", "times=2")
    assert 'agent_message_chunk "a b a b"' in result.stdout

    result = run("try", name, "--with", "times=two", "--with", "text=x")
    assert result.returncode == 3
    assert result.stdout.startswith("Options: its options are wrong (--with NAME=VALUE):\n")
    assert "times" in result.stdout
    assert "texts" in result.stdout

    result = run("try", name, "--with", "texts=a", "--with", "tmes=2")
    assert "texts: expected a list, found `a`; write a list: `[a]`" in result.stdout
    assert "unknown option `tmes`; did you mean `times`?" in result.stdout


def test_a_recorded_agent_takes_the_place_of_the_test_agent(run, write):
    result = run("try", write(NOTES), "--agent", "opencode")

    assert result.stdout.startswith("notes.py: Notes, with the recorded agent opencode\n")
    prompts = re.findall(r"→ session/prompt #\d+ (.*)", result.stdout)
    assert prompts == [
        '"Say hello."',
        '"Read notes.txt."',
        '"Write notes.txt."',
        '"Run the tests."',
    ]
    assert '      + update.content.text: "HELLO."\n' in result.stdout
    assert (result.stderr, result.returncode) == ("", 0)


def test_an_unknown_recording_is_wrong_usage(run, write):
    result = run("try", write(NOTES), "--agent", "claude")

    assert "no recording is called 'claude'; there are: claude-agent-acp, " in result.stderr
    assert result.returncode == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "permissions", "answer", "said"),
    [
        ("2", "allow", '{"action": "accept", "content": {"name": "ann"}}', "ann"),
        ("1", "deny", '{"action": "decline"}', "nobody"),
    ],
)
def test_questions_are_answered(run, write, protocol, permissions, answer, said):
    name = write(
        """class Asking(Proxy):
    @tool
    async def who(self, context: Context) -> str:
        name = {"type": "string", "enum": ["ann", "bob"]}
        schema = {"type": "object", "properties": {"name": name}, "required": ["name"]}
        session = context.session.id
        answer = await self.client.elicit("Who?", schema, session_id=session)
        return answer["name"] if answer else "nobody"
"""
    )
    options = ["--protocol", protocol, "--permissions", permissions]
    done = run("try", name, *options, "--prompt", "call Asking who")

    assert done.returncode == 0
    assert f"→ answer to elicitation/create #5 {answer}\n" in done.stdout
    assert f'← session/update agent_message_chunk "{said}\\n"\n' in done.stdout


@pytest.mark.slow
def test_a_terminal_gets_colours(terminal, write):
    shown = terminal("try", write(NOTES), env={"TERM": "xterm-256color"})

    assert shown.exit_code() == 0
    assert '\x1b[32m      + update.content.text: "HELLO"\x1b[0m' in shown.seen


@pytest.mark.slow
def test_control_characters_of_the_proxy_do_not_reach_the_terminal(run, write):
    name = write(
        """class Evil(Proxy):
    @on_prompt
    async def say(self, session, prompt, forward):
        raise ValueError("\\x1b[31mred")
"""
    )
    assert "\x1b" not in run("try", name).stdout
