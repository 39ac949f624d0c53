"""`acp-conductor serve` as a process: output, refusals, drain and stop."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket as stdlib_socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import httpx2
import psutil
import pytest
import trio
import trio_websocket
from support.forked_command import CommandServer
from support.leftovers import running
from support.no_authorities import NO_AUTHORITIES
from support.raw_json import compact, dumps
from support.server_clients import CHAIN, PATIENCE, ask, initialize, new_session, prompt, texts

pytestmark = pytest.mark.slow

LISTENING = re.compile(r"^acp-conductor: listening on (\S+)$")


@attrs.define(eq=False)
class Process:
    """A `serve` that listens."""

    popen: subprocess.Popen[str]
    addresses: list[str]

    @property
    def url(self) -> str:
        return self.addresses[0]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.popen.send_signal(number)
        return self.popen.wait(PATIENCE)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Start `serve` with these options; nothing of it is left after the test."""
    started: list[subprocess.Popen[str]] = []
    (tmp_path / "chain.yaml").write_text(CHAIN)

    def serve(*options: str, chain: str = CHAIN, **env: str) -> Process:
        (tmp_path / "chain.yaml").write_text(chain)
        listen = options if "--listen" in options else ("--listen", "127.0.0.1:0", *options)
        process = run(tmp_path, *listen, env=env)
        started.append(process)
        count = listen.count("--listen")
        assert process.stderr is not None
        lines = [process.stderr.readline().rstrip() for _ in range(count)]
        matches = [LISTENING.match(line) for line in lines]
        assert all(matches), lines
        return Process(process, [match[1] for match in matches if match])

    yield serve
    for process in started:
        children = psutil.Process(process.pid).children() if process.poll() is None else []
        process.kill()
        process.communicate()
        assert running(children) == []


def run(directory: Path, *options: str, env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "conductor", "serve", str(directory / "chain.yaml"), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "ACP_CONDUCTOR_LOG": "error", **env},
    )


@pytest.fixture
def refused(tmp_path: Path, command_server: CommandServer) -> Callable[..., tuple[int, str]]:
    """The exit status and the stderr of a `serve` that does not start with these options."""

    def refused(*options: str) -> tuple[int, str]:
        (tmp_path / "chain.yaml").write_text(CHAIN)
        result = command_server.run(
            ["serve", str(tmp_path / "chain.yaml"), *options],
            input="",
            cwd=tmp_path,
            env={**os.environ, "ACP_CONDUCTOR_LOG": "error"},
            timeout=PATIENCE,
        )
        return result.returncode, result.stderr

    return refused


@contextmanager
def client(process: Process) -> Iterator[Any]:
    url = process.url.removesuffix("/acp")
    with httpx2.Client(base_url=url, timeout=PATIENCE, verify=NO_AUTHORITIES) as client:
        yield client


def test_it_serves_although_its_stderr_is_on_a_full_disk(tmp_path):
    (tmp_path / "chain.yaml").write_text(CHAIN)
    address = tmp_path / "acp.sock"
    argv = [sys.executable, "-m", "conductor", "serve", str(tmp_path / "chain.yaml")]
    with (
        open("/dev/full", "w") as full,
        subprocess.Popen([*argv, "--listen", f"unix:{address}"], stderr=full) as process,
        stdlib_socket.socket(stdlib_socket.AF_UNIX) as client,
    ):
        try:
            client.settimeout(PATIENCE)
            while not _connects(client, str(address)):
                assert process.poll() is None
                time.sleep(0.02)  # no event tells
            client.sendall(dumps(initialize()) + b"\n")
            answer = json.loads(client.makefile().readline())
        finally:
            process.send_signal(signal.SIGTERM)

    assert "result" in answer
    assert process.returncode == 128 + signal.SIGTERM


def _connects(client: stdlib_socket.socket, address: str) -> bool:
    try:
        client.connect(address)
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    return True


def test_it_prints_its_address_and_is_healthy_and_ready(serve):
    process = serve("--listen", "127.0.0.1:0", "--listen", "[::1]:0")

    with client(process) as http:
        assert http.get("/health").text == "ok"
        assert http.get("/ready").text == "ready"
    assert process.url.startswith("http://127.0.0.1:")
    assert process.addresses[1].startswith("http://[::1]:")
    assert process.end() == 128 + signal.SIGTERM


@pytest.mark.parametrize("options", [("--max-message-bytes", "1000"), ()])
def test_a_message_over_the_lower_of_two_limits_is_refused(serve, options):
    process = serve(
        *options, chain=CHAIN if options else f"{CHAIN}limits: {{max_message_bytes: 1000}}\n"
    )
    padded = {**initialize(), "_meta": "x" * 1000}

    with client(process) as http:
        statuses = [http.post("/acp", json=each).status_code for each in (padded, initialize())]

    assert statuses == [413, 200]


@pytest.mark.fast
def test_a_unix_socket_has_lines_and_mode_0600(serve, tmp_path):
    path = tmp_path / "acp.sock"
    process = serve("--listen", f"unix:{path}")

    mode = path.stat().st_mode
    with stdlib_socket.socket(stdlib_socket.AF_UNIX) as peer, peer.makefile("rw") as lines:
        peer.settimeout(PATIENCE)
        peer.connect(str(path))
        print(compact(initialize()), file=lines, flush=True)
        answer = json.loads(lines.readline())

    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600
    assert process.addresses == [f"unix:{path}"]
    assert answer["result"]["agentInfo"]["name"] == "test-agent"
    process.end()
    assert not path.exists()


def test_a_stale_unix_socket_is_replaced(serve, tmp_path):
    path = tmp_path / "acp.sock"
    with stdlib_socket.socket(stdlib_socket.AF_UNIX) as killed:
        killed.bind(str(path))
    assert path.exists()

    serve("--listen", f"unix:{path}").end()
    assert not path.exists()


def test_a_socket_that_is_in_use_is_left_alone(refused, tmp_path):
    path = tmp_path / "acp.sock"
    with stdlib_socket.socket(stdlib_socket.AF_UNIX) as first:
        first.bind(str(path))
        first.listen()
        status, error = refused("--listen", f"unix:{path}")

    assert status == 3
    assert error == f"acp-conductor serve: {path}: another server listens here\n"
    assert path.exists()


@pytest.mark.fast
def test_a_port_in_use_is_reported(tmp_path):
    (tmp_path / "chain.yaml").write_text(CHAIN)
    with stdlib_socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = run(tmp_path, "--listen", f"127.0.0.1:{port}", env={})
        error = process.communicate(timeout=PATIENCE)[1]

    assert process.returncode == 3
    assert error.startswith(f"acp-conductor serve: 127.0.0.1:{port}: ")
    assert "in use" in error


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"])
def test_a_public_address_without_protection_is_refused(refused, listen):
    status, error = refused("--listen", listen)

    assert status == 2
    assert "needs TLS (--tls-cert and --tls-key) and authentication (--token-file or" in error
    assert "--insecure" in error


def test_insecure_listens_without_protection(serve):
    process = serve("--listen", "0.0.0.0:0", "--insecure")

    assert process.url.startswith("http://0.0.0.0:")
    process.end()


OTHER_USER = """
import encodings.idna, http.client, os, sys, urllib.parse
os.setuid(65534)
connection = http.client.HTTPConnection(urllib.parse.urlsplit(sys.argv[1]).netloc)
upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
for headers in ({}, {**upgrade, "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg=="}):
    connection.request("GET", "/acp", headers={"Accept": "text/event-stream", **headers})
    answer = connection.getresponse()
    answer.read()
    print(answer.status)
    connection.close()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(
    ("options", "env", "answers"),
    [
        ((), {}, ["403", "403"]),
        (("--insecure",), {}, ["400", "101"]),
        ((), {"ACP_CONDUCTOR_TOKENS": "a" * 32}, ["401", "401"]),
    ],
    ids=["default", "insecure", "tokens"],
)
def test_without_tokens_other_users_of_the_machine_are_refused(serve, options, env, answers):
    process = serve(*options, **env)
    arguments = [sys.executable, "-c", OTHER_USER, process.url]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE)

    assert done.stdout.split() == answers, done.stderr


def response(http: Any, headers: dict[str, str], id: int, before: list[Any] | None = None) -> Any:
    """The response to a request, from a new event stream; `before` gets what comes earlier."""
    with http.stream("GET", "/acp", headers={**headers, "accept": "text/event-stream"}) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                message = json.loads(line.removeprefix("data: "))
                if message.get("id") == id and "method" not in message:
                    return message
                if before is not None:
                    before.append(message)
    raise AssertionError(f"the stream ended before the response to {id}")


def test_tokens_come_from_the_environment_and_go_no_further(serve):
    """Every process of the same user, such as an agent, can read the initial environment."""
    token = "t0ken-of-ann-0123456789"
    process = serve(ACP_CONDUCTOR_TOKENS=f"ann:{token}", HARMLESS="seen")
    environ = Path(f"/proc/{process.popen.pid}/environ")
    if environ.exists():
        assert b"HARMLESS=seen" in environ.read_bytes()
        assert token.encode() not in environ.read_bytes()
    shown = {"authorization": f"Bearer {token}"}

    with client(process) as http:
        refused = http.post("/acp", json=initialize())
        answer = http.post("/acp", json=initialize(), headers=shown)
        id = {**shown, "acp-connection-id": answer.headers["acp-connection-id"]}
        http.post("/acp", json=new_session(1), headers=id)
        session = response(http, id, 1)["result"]["sessionId"]
        named = {**id, "acp-session-id": session}
        http.post("/acp", json=prompt(2, session, "env ACP_CONDUCTOR_TOKENS"), headers=named)
        said: list[Any] = []
        ended = response(http, named, 2, said)

    assert refused.status_code == 401
    assert ended["result"] == {"stopReason": "end_turn"}
    assert list(texts(said))
    assert token not in json.dumps(said)
    process.end()


def test_a_token_file_may_hold_digests_alone(serve, tmp_path):
    token = "t0ken-of-ann-0123456789"
    file = tmp_path / "tokens"
    file.write_text(f"ann:sha256:{hashlib.sha256(token.encode()).hexdigest()}\n")
    file.chmod(0o600)
    process = serve("--token-file", str(file))
    digest = file.read_text().strip().removeprefix("ann:")
    with client(process) as http:
        statuses = [
            http.post(
                "/acp", json=initialize(), headers={"authorization": f"Bearer {shown}"}
            ).status_code
            for shown in (token, digest, digest.removeprefix("sha256:"))
        ]
    process.end()

    assert statuses == [200, 401, 401]


def test_a_token_file_that_others_can_read_is_refused(refused, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("t0ken-of-ann-0123456789\n")
    tokens.chmod(0o640)
    status, error = refused("--token-file", str(tokens))

    assert status == 2
    assert f"{tokens} can be read by others; `chmod 600 {tokens}`" in error
    assert "t0ken" not in error


async def until_closed(socket: trio_websocket.WebSocketConnection) -> list[Any]:
    """What still comes before the server closes the socket."""
    got: list[Any] = []
    with suppress(trio_websocket.ConnectionClosed):
        while True:
            got.append(json.loads(await socket.get_message()))
    return got


async def connect(process: Process) -> Any:
    return trio_websocket.open_websocket_url(process.url.replace("http", "ws", 1))


async def test_a_turn_may_end_before_the_server_does(serve):
    """SIGTERM: no new clients, and who has nothing to do is sent away, but turns go on."""
    process = serve("--drain-timeout", "20")
    with trio.fail_after(PATIENCE):
        async with await connect(process) as busy, await connect(process) as idle:
            await ask(busy, initialize())
            await ask(idle, initialize())
            session = (await ask(busy, new_session(1)))["result"]["sessionId"]
            await busy.get_message()
            await busy.send_message(compact(prompt(2, session, "say begun\nask")))
            asked: dict[str, Any] = {}
            while asked.get("method") != "session/request_permission":
                asked = json.loads(await busy.get_message())
            process.popen.send_signal(signal.SIGTERM)
            with pytest.raises(trio_websocket.ConnectionClosed) as closed:
                await idle.get_message()
            with client(process) as http:
                ready = http.get("/ready")
                refused = http.post("/acp", json=initialize())
            option = asked["params"]["options"][0]["optionId"]
            result = {"outcome": {"outcome": "selected", "optionId": option}}
            answer = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
            await busy.send_message(compact(answer))
            last: dict[str, Any] = {}
            while last.get("id") != 2:
                last = json.loads(await busy.get_message())
            await until_closed(busy)
            await idle._stream.aclose()
            await busy._stream.aclose()

    assert closed.value.reason.code == 1001
    assert ready.status_code == 503
    assert (refused.status_code, refused.text) == (503, "the server is shutting down")
    assert last["result"] == {"stopReason": "end_turn"}
    assert process.popen.wait(PATIENCE) == 128 + signal.SIGTERM


async def test_the_drain_timeout_ends_a_running_turn(serve):
    chain = "version: 1\nagent: {use: test-agent, stop_timeout: 200ms}\n"
    process = serve("--drain-timeout", "0.3", chain=chain)
    with trio.fail_after(PATIENCE):
        async with await connect(process) as socket:
            await ask(socket, initialize())
            session = (await ask(socket, new_session(1)))["result"]["sessionId"]
            await socket.send_message(compact(prompt(2, session, "wait")))
            await ask(socket, {"jsonrpc": "2.0", "id": 3, "method": "session/list"})
            process.popen.send_signal(signal.SIGTERM)
            got = await until_closed(socket)
            await socket._stream.aclose()

    (answer,) = [message for message in got if message.get("id") == 2]
    assert "error" in answer or "result" in answer
    assert process.popen.wait(PATIENCE) == 128 + signal.SIGTERM


async def test_a_second_signal_ends_it_now(serve):
    process = serve("--drain-timeout", "600")
    with trio.fail_after(PATIENCE):
        async with await connect(process) as socket:
            await ask(socket, initialize())
            session = (await ask(socket, new_session(1)))["result"]["sessionId"]
            await socket.send_message(compact(prompt(2, session, "wait")))
            await ask(socket, {"jsonrpc": "2.0", "id": 3, "method": "session/list"})
            process.popen.send_signal(signal.SIGTERM)
            with client(process) as http:
                while http.get("/ready").status_code != 503:
                    pass
            assert process.end() == 128 + signal.SIGTERM
            await socket._stream.aclose()


@pytest.mark.fast
async def test_every_client_has_an_agent_of_its_own_and_none_is_left(serve):
    agent = f"[{sys.executable}, -m, conductor.testing.agent]"
    process = serve(chain=f"version: 1\nagent: {{run: {agent}}}\n")
    with trio.fail_after(PATIENCE):
        async with await connect(process) as one, await connect(process) as two:
            await ask(one, initialize())
            await ask(two, initialize())
            agents = components(process)

    assert len(agents) == 2
    assert process.end() == 128 + signal.SIGTERM
    assert running(agents) == []


def components(process: Process) -> list[psutil.Process]:
    children = psutil.Process(process.popen.pid).children()
    return [each for each in children if "guard_process.py" not in " ".join(each.cmdline())]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  (of other processes, which no event tells)
        await trio.sleep(0.01)


def zombies(process: Process) -> list[psutil.Process]:
    return below(process, lambda each: each.status() == psutil.STATUS_ZOMBIE)


def sleeps(process: Process) -> list[psutil.Process]:
    return below(process, lambda each: each.name() == "sleep")


def below(process: Process, wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    found = []
    for each in psutil.Process(process.popen.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it may end while we look
            if wanted(each):
                found.append(each)
    return found


async def test_leftover_processes_of_an_agent_end_with_its_client(serve):
    leave = "for n in 1 2 3 4 5; do (setsid sleep 3600 &); (sleep 3600 &); done;"
    agent = f"{leave} exec {sys.executable} -m conductor.testing.agent"
    process = serve(chain=f"version: 1\nagent: {{run: [sh, -c, {json.dumps(agent)}]}}\n")
    with trio.fail_after(PATIENCE):
        async with await connect(process) as first, await connect(process) as second:
            for socket in (first, second):
                await ask(socket, initialize())
            await until(lambda: len(sleeps(process)) == 20)
            await first.aclose()
            await until(lambda: len(sleeps(process)) == 10 and not zombies(process))
            kept = sleeps(process)
            await ask(second, new_session(1))
            assert sleeps(process) == kept
        await until(lambda: not sleeps(process) and not zombies(process))
