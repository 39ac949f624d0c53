"""Second agents of a plugin: programs and chain files, in the plugin's process and isolated."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from conductor.chainfile import ComponentSpec
from conductor.errors import (
    ChainFileError,
    ConnectionClosed,
    LocalProtocolError,
    RequestError,
    StartError,
)
from conductor.proxy import Proxy, on_prompt, slash
from conductor.testing import FakeAgent
from conductor.transport.io_loop import HIGH_WATERMARK

TEST_AGENT = [sys.executable, "-m", "conductor.testing.agent"]
COMPONENTS = Path(__file__).parents[1] / "support" / "components"


class Second(Proxy):
    """Sends each prompt to a second agent and answers with its text."""

    def __init__(self, source, **options):
        self.source, self.options = source, options
        self.updates = []

    @on_prompt
    async def ask(self, session, prompt, forward):
        async with self.open_agent(self.source, like=session, **self.options) as agent:
            turn = await agent.prompt(prompt.text, on_update=self.updates.append)
        return await prompt.answer(f"{turn.stop_reason}: {turn.text}")


@pytest.fixture
def chain_file(tmp_path):
    """A chain file whose agent runs in this process."""
    path = tmp_path / "second.yaml"
    path.write_text("version: 1\nagent:\n  use: test-agent\n")
    return path


async def opened(client, cwd="/work"):
    """The id of a session, other than that of a second agent."""
    await client.initialize()
    await client.new_session(cwd)
    return await client.new_session(cwd)


async def answered(client, session, prompt):
    before = len(client.transcript.text())
    await client.prompt(session, prompt)
    return client.transcript.text()[before:]


async def test_a_program_answers_and_its_updates_are_given_in_order(chain):
    proxy = Second(TEST_AGENT)
    agent = FakeAgent()
    async with chain(proxy, agent) as client:
        session = await opened(client)
        text = await answered(client, session, "stream 3 1")

    assert agent.transcript.of("session/prompt", "request") == []
    chunks = [u for u in proxy.updates if u["sessionUpdate"] == "agent_message_chunk"]
    assert len(chunks) == 3
    assert text == "end_turn: " + "".join(chunk["content"]["text"] for chunk in chunks)


async def test_a_chain_file_is_opened_in_the_session_of_the_client(chain, chain_file, tmp_path):
    (tmp_path / "a.txt").write_text("from the disk")
    read = []

    def read_text_file(params):
        read.append((params["sessionId"], params["path"]))
        return {"content": "from the editor"}

    async with chain(Second(chain_file), FakeAgent()) as client:
        client.handlers["fs/read_text_file"] = read_text_file
        session = await opened(client, str(tmp_path))
        text = await answered(client, session, "read a.txt")

    assert read == [(session, str(tmp_path / "a.txt"))]
    assert "from the editor" in text


async def test_permission_requests_go_to_the_client_or_to_a_handler(chain, chain_file):
    asked = []

    def from_client(params):
        asked.append(("client", params["sessionId"]))
        return {"outcome": {"outcome": "cancelled"}}

    async def from_handler(params):
        asked.append(("handler", params["sessionId"]))
        return {"outcome": {"outcome": "cancelled"}}

    async with chain(Second(chain_file), FakeAgent()) as client:
        client.handlers["session/request_permission"] = from_client
        session = await opened(client)
        await client.prompt(session, "ask Delete")
    handlers = {"session/request_permission": from_handler}
    async with chain(Second(chain_file, handlers=handlers), FakeAgent()) as client:
        client.handlers["session/request_permission"] = from_client
        session = await opened(client)
        await client.prompt(session, "ask Delete")

    (first, second) = asked
    assert first == ("client", session)
    assert second[0] == "handler"
    assert second[1].startswith("session-1-")


async def test_an_exception_of_a_handler_is_an_error_for_the_second_agent(chain, chain_file):
    def broken(params):
        raise KeyError("x")

    handlers = {"session/request_permission": broken}
    async with chain(Second(chain_file, handlers=handlers), FakeAgent()) as client:
        session = await opened(client)
        text = await answered(client, session, "ask Delete")

    told, answer = filter(None, text.splitlines())
    assert told.startswith("[acp-conductor] Second failed in broken: KeyError: 'x' (")
    assert answer == "end_turn: Delete: Internal error: KeyError: 'x' (-32603)"


async def test_a_cancelled_turn_of_the_client_cancels_that_of_the_second_agent(chain, chain_file):
    started = trio.Event()
    turns = []

    class P(Second):
        @on_prompt
        async def ask(self, session, prompt, forward):
            async with self.open_agent(self.source, like=session) as agent:
                turn = await agent.prompt("say x\nwait 1000", lambda update: started.set())
            turns.append(turn.stop_reason)
            return {"stopReason": turn.stop_reason}

    async with chain(P(chain_file), FakeAgent()) as client, trio.open_nursery() as nursery:
        session = await opened(client)

        async def cancel():
            await started.wait()
            client.cancel(session)

        nursery.start_soon(cancel)
        assert await client.prompt(session, "go") == {"stopReason": "cancelled"}

    assert turns == ["cancelled"]


async def test_the_lane_is_free_while_a_second_agent_works(chain, chain_file):
    class P(Second):
        @slash("second", "Ask")
        async def second(self, session, arguments):
            async with self.open_agent(self.source, like=session) as agent:
                await self.agent.notify("_example/note", {"sessionId": session.id})
                return (await agent.prompt("ask Delete")).text

    async with chain(P(chain_file), FakeAgent()) as client:
        session = await opened(client)
        await client.prompt(session, "/second")  # the client's answer passes the handler's lane

    assert client.transcript.text() == "Delete: allow\n"


async def test_an_error_of_the_callback_and_a_second_prompt_are_raised(chain, chain_file):
    seen = []

    class P(Second):
        @on_prompt
        async def ask(self, session, prompt, forward):
            async with self.open_agent(self.source, like=session) as agent:

                async def again(update):
                    await agent.prompt("say y")

                try:
                    await agent.prompt("say x", again)
                except LocalProtocolError as exc:
                    seen.append(str(exc))
                turn = await agent.prompt("say z")
            return await prompt.answer(turn.text)

    async with chain(P(chain_file), FakeAgent()) as client:
        session = await opened(client)
        await client.prompt(session, "go")

    assert "prompt() while a turn runs" in seen[0]
    assert client.transcript.text() == "z"


async def test_nothing_of_a_turn_with_a_failed_callback_is_in_the_next_turn(chain, chain_file):
    class P(Second):
        @on_prompt
        async def ask(self, session, prompt, forward):
            async with self.open_agent(self.source, like=session) as agent:

                async def broken(update):
                    await wait_all_tasks_blocked()
                    raise KeyError("x")

                with pytest.raises(KeyError):
                    await agent.prompt("stream 1200 10000", broken)
                turn = await agent.prompt("say z")
            return await prompt.answer(turn.text)

    async with chain(P(chain_file), FakeAgent()) as client:
        session = await opened(client)
        await client.prompt(session, "go")

    assert client.transcript.text() == "z"


async def test_an_agent_without_a_session_of_the_client_lives_as_long_as_the_plugin(
    chain, chain_file
):
    class P(Proxy):
        @asynccontextmanager
        async def lifespan(self):
            async with self.open_agent(chain_file) as self.adviser:
                yield

        @on_prompt
        async def ask(self, session, prompt, forward):
            return await prompt.answer((await self.adviser.prompt(prompt.text)).text)

    async with chain(P(), FakeAgent()) as client:
        session = await opened(client)
        assert await answered(client, session, "say one") == "one"
        assert await answered(client, session, "ask Delete") == "Delete: cancelled\n"
        assert "Method not found" in await answered(client, session, "read a.txt")


async def test_the_session_has_the_mcp_servers_that_the_agent_can_reach(chain, chain_file):
    tools = {"name": "tools", "command": sys.executable, "env": []}
    tools["args"] = [str(COMPONENTS / "mcp_server.py")]
    http = {"type": "http", "name": "web", "url": "http://127.0.0.1:9/", "headers": []}
    over_acp = {"type": "acp", "name": "bridged", "id": "1"}
    async with chain(Second(chain_file), FakeAgent()) as client:
        await client.initialize()
        session = await client.new_session("/", [tools, http, over_acp])
        text = await answered(client, session, "tools")

    assert "tools" in text
    assert "web" not in text
    assert "bridged" not in text


async def test_an_agent_that_outruns_the_callback_is_not_read(chain, chain_file):
    class P(Second):
        largest = 0

        @on_prompt
        async def ask(self, session, prompt, forward):
            async with self.open_agent(self.source, like=session) as agent:
                seen = 0

                async def slow(update):
                    nonlocal seen
                    seen += 1
                    if seen in (1, 100):
                        await wait_all_tasks_blocked()
                        self.largest = max(self.largest, agent._turn.unread)

                turn = await agent.prompt("stream 1200 10000", slow)
            return await prompt.answer(f"{len(turn.text)}")

    proxy = P(chain_file)
    async with chain(proxy, FakeAgent()) as client:
        session = await opened(client)
        text = await answered(client, session, "go")

    assert int(text) == 12_000_000
    assert HIGH_WATERMARK / 2 < proxy.largest < 2 * HIGH_WATERMARK


@pytest.mark.parametrize(
    ("source", "error", "text"),
    [
        (["no-such-program"], StartError, "component 'no-such-program' did not start"),
        ([sys.executable, "-c", "import sys; sys.exit('no key')"], StartError, "no key"),
        ("/no/such.yaml", ChainFileError, "no/such.yaml"),
        ([], LocalProtocolError, "the argv is empty"),
        ([sys.executable, str(COMPONENTS / "login_agent.py")], RequestError, "Authentication"),
    ],
)
async def test_an_agent_that_does_not_start_raises_a_clear_error(chain, source, error, text):
    caught = []

    class P(Second):
        @on_prompt
        async def ask(self, session, prompt, forward):
            try:
                async with self.open_agent(self.source, like=session):
                    pass
            except Exception as exc:
                caught.append(exc)
            return await forward()

    async with chain(P(source), FakeAgent()) as client:
        session = await opened(client)
        await client.prompt(session, "go")

    (exc,) = caught
    assert isinstance(exc, error)
    assert text in f"{exc} {getattr(exc, 'stderr_tail', '')}"


async def test_a_file_without_an_agent_is_refused(chain, tmp_path):
    file = tmp_path / "proxies.yaml"
    file.write_text("version: 1\nproxies: []\n")
    async with chain(Second(file), FakeAgent()) as client:
        session = await opened(client)
        with pytest.raises(RequestError) as caught:
            await client.prompt(session, "go")

    assert "has no `agent:`" in f"{caught.value} {caught.value.data}"


async def test_the_program_stops_in_order_at_the_end_of_the_block_and_of_the_chain(chain, tmp_path):
    program = ["sh", "-c", '"$0" -m conductor.testing.agent; echo stopped >> "$1"']
    program += [sys.executable, str(tmp_path / "log")]
    running, others = [], {*children()}
    opened_again = trio.Event()

    class P(Second):
        @on_prompt
        async def ask(self, session, prompt, forward):
            async with self.open_agent(self.source, like=session) as agent:
                running.append(len({*children()} - others))
                if prompt.text == "stay":
                    opened_again.set()
                    await agent.prompt("wait 1000")
            return await forward()

    async with chain(P(program), FakeAgent(), stop_timeout=0.1) as client:
        session = await opened(client)
        await client.prompt(session, "go")
        running.append(len({*children()} - others))
        client.start_soon(_ignore_closed, client.prompt, session, "stay")
        await opened_again.wait()
    running.append(len({*children()} - others))

    assert running == [1, 0, 1, 0]
    assert (tmp_path / "log").read_text() == "stopped\nstopped\n"


PROGRAM = """
from conductor.proxy import Proxy, on_prompt, run

class Second(Proxy):
    @on_prompt
    async def ask(self, session, prompt, forward):
        script = "echo $$ > pid; exec \\"$0\\" -m conductor.testing.agent"
        source = ["sh", "-c", f"cd {session.cwd}; {script}", PYTHON]
        async with self.open_agent(source, like=session, name="adviser") as agent:
            turn = await agent.prompt(prompt.text)
        return await prompt.answer(turn.text)

if __name__ == "__main__":
    run(Second)
"""


@pytest.mark.parametrize(
    "how",
    [
        "isolated",
        pytest.param("stand-alone", marks=pytest.mark.slow),
    ],
)
async def test_a_plugin_opens_an_agent_however_it_runs(chain, tmp_path, how):
    file = tmp_path / "second.py"
    file.write_text(PROGRAM.replace("PYTHON", repr(sys.executable)))
    use = f"{file}:Second"
    spec = {
        "isolated": ComponentSpec(name="second", use=use, isolate=True),
        "stand-alone": ComponentSpec(name="second", run=(sys.executable, str(file))),
    }[how]
    async with chain(spec, FakeAgent()) as client:
        session = await opened(client, str(tmp_path))
        await client.prompt(session, "ask Delete")

    assert client.transcript.text() == "Delete: allow\n"
    assert not is_running(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("isolate", [pytest.param("false", marks=pytest.mark.slow), "true"])
def test_the_stderr_of_a_second_agent_is_in_the_log_with_its_name(tmp_path, isolate):
    (tmp_path / "second.py").write_text(PROGRAM.replace("PYTHON", repr(sys.executable)))
    (tmp_path / "chain.yaml").write_text(
        "version: 1\nproxies:\n  - use: ./second.py:Second\n"
        f"    isolate: {isolate}\nagent:\n  use: test-agent\n"
    )
    command = [sys.executable, "-m", "conductor", "--log", "info", "prompt", "chain.yaml"]
    ran = subprocess.run(
        [*command, "log from the adviser"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert ran.returncode == 0, ran.stderr
    (line,) = (line for line in ran.stderr.splitlines() if "from the adviser" in line)
    assert "component=adviser" in line


async def test_a_second_agent_ends_when_the_process_of_its_plugin_is_killed(chain, tmp_path):
    file = tmp_path / "second.py"
    file.write_text(PROGRAM.replace("PYTHON", repr(sys.executable)))
    spec = ComponentSpec(name="second", run=(sys.executable, str(file)), on_failure="end_chain")
    async with chain(spec, FakeAgent()) as client:
        session = await opened(client, str(tmp_path))
        asked = trio.Event()

        async def never_answer(params):
            asked.set()
            await trio.sleep_forever()

        client.handlers["session/request_permission"] = never_answer
        client.start_soon(_ignore_closed, client.prompt, session, "ask Delete")
        await asked.wait()
        pid = int((tmp_path / "pid").read_text())
        program = os.pidfd_open(pid)
        for child in children():
            child.kill()
        with trio.fail_after(10):
            await trio.lowlevel.wait_readable(program)  # at the end of the process
        os.close(program)


def is_running(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


async def _ignore_closed(prompt, *args):
    with suppress(ConnectionClosed, RequestError):
        await prompt(*args)


def children() -> list[psutil.Process]:
    return psutil.Process().children()
