"""A conductor process started as by an editor, with pipes and a time limit.

Nothing here sleeps: waits end with a line or EOF. `PATIENCE` (seconds) only keeps a failing test
from hanging.
"""

import json
import os
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import psutil

from support.forked_command import SERVERS, CommandServer, ForkedCommand
from support.peers.wire import encoded

SUPPORT = Path(__file__).parents[1]
ROOT = SUPPORT.parents[1]
COMPONENTS = SUPPORT / "components"
PATIENCE = 60.0
CONDUCTOR = [sys.executable, "-m", "conductor"]

Message = dict[str, Any]


def python(script: str | Path, *arguments: object) -> list[str]:
    """The command of a Python component; without `site`, which doubles its start."""
    return [sys.executable, "-S", "-E", str(COMPONENTS / script), *map(str, arguments)]


def agent(*flags: object) -> list[str]:
    """An agent that follows its prompts (echo_agent.py), with flags of misbehave.py."""
    return python("misbehave.py", *flags) if flags else python("echo_agent.py")


def proxy(name: str, *flags: object) -> list[str]:
    """A proxy that tags what passes with its name."""
    return python("pass_proxy.py", "--tag", "--name", name, *flags)


def probe(*arguments: object) -> list[str]:
    """An agent whose prompts ask about its process (probe_agent.py)."""
    return python("probe_agent.py", *arguments)


def running_below(pid: int | None = None) -> list[psutil.Process]:
    """Running descendants of a process (default: this one, without its server of commands), without
    the guards of conductors."""
    try:
        processes = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    running = [each for each in processes if is_running(each) and each.pid not in SERVERS]
    return running if pid is None else [each for each in running if not is_guard(each)]


def is_guard(process: psutil.Process) -> bool:
    """Whether it is the guard that ends all components if the conductor is killed."""
    try:
        return any(word.endswith("guard_process.py") for word in process.cmdline())
    except psutil.Error:
        return False


def is_running(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def peak(pid: int) -> int:
    """The most memory that a process has ever had, in bytes."""
    (line,) = (x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmHWM" in x)
    return int(line.split()[1]) * 1024


class Editor:
    """One run of the conductor, forked from a server or started with `Popen`, which gets the
    keywords; stdin, stdout and stderr are pipes by default."""

    def __init__(
        self, arguments: Sequence[str], server: CommandServer | None = None, **options: Any
    ) -> None:
        self.process: subprocess.Popen[bytes] | ForkedCommand
        if server is None:
            pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            options = {"bufsize": 0, **pipes, **options}
            self.process = subprocess.Popen([*CONDUCTOR, *arguments], **options)
        else:
            cwd = Path(options.pop("cwd", Path.cwd()))
            assert not options
            self.process = server.popen(arguments, cwd=cwd, env=os.environ)
        self.pid = self.process.pid
        self.log: list[str] = []
        self.others: list[Message] = []
        """Messages received while waiting for a response."""
        self._ids = count(1)
        self._lines: deque[bytes] = deque()
        self._pieces: list[bytes] = []
        self._log_ended = False
        self._logged = threading.Condition()
        self._logger = threading.Thread(target=self._read_log, daemon=True)
        self._logger.start()

    # -- to the conductor ------------------------------------------------------------------------

    def send(self, *messages: Message) -> None:
        """Write messages, all in one piece."""
        self.write(b"".join(map(encoded, messages)))

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view) :]

    def request(self, method: str, **params: Any) -> int:
        """Send a request, and return its id."""
        request_id = next(self._ids)
        self.send({"id": request_id, "method": method, "params": params})
        return request_id

    def initialize(self) -> Message:
        return self.answer(self.request("initialize", protocolVersion=1, clientCapabilities={}))

    def open(self) -> str:
        """Initialize, and open a session."""
        assert "result" in self.initialize()
        answer = self.answer(self.request("session/new", cwd="/", mcpServers=[]))
        session: str = answer["result"]["sessionId"]
        return session

    def prompt(self, text: str, session: str = "s1") -> int:
        block = {"type": "text", "text": text}
        return self.request("session/prompt", sessionId=session, prompt=[block])

    def ask(self, text: str) -> str:
        """Prompt, and return the text of the reply."""
        self.others.clear()
        answer = self.answer(self.prompt(text))
        assert answer["result"]["stopReason"] == "end_turn", answer
        return "".join(map(chunk, self.others))

    # -- from the conductor ----------------------------------------------------------------------

    def read(self) -> Message | None:
        """The next message, or None at the end."""
        while not self._lines:
            data = self.read_bytes()
            if not data:
                assert not any(self._pieces), (
                    f"half a message at the end: {self._pieces[0][:200]!r}"
                )
                return None
            first, *others = data.split(b"\n")
            self._pieces.append(first)
            if others:
                self._lines += [b"".join(self._pieces), *others[:-1]]
                self._pieces = [others[-1]]
        message: Message = json.loads(self._lines.popleft())
        return message

    def read_bytes(self) -> bytes:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        assert ready, f"no message for {PATIENCE:g} s; the log ends with {self.log[-5:]}"
        return os.read(self.process.stdout.fileno(), 1 << 20)

    def next(self, wanted: Callable[[Message], bool]) -> Message:
        """The first message that is wanted; those before it go to `others`."""
        while (message := self.read()) is not None:
            if wanted(message):
                return message
            self.others.append(message)
        raise AssertionError(f"the conductor ended; others: {self.others}; log: {self.log[-5:]}")

    def answer(self, request_id: object) -> Message:
        """The response to a request, also if it came while another was awaited."""

        def is_answer(message: Message) -> bool:
            return message.get("id") == request_id and "method" not in message

        for index, message in enumerate(self.others):
            if is_answer(message):
                return self.others.pop(index)
        return self.next(is_answer)

    def rest(self) -> list[Message]:
        """Everything to the end."""
        return list(iter(self.read, None))

    def wait_log(self, text: str) -> str:
        """Wait for a line on stderr that contains a text, and return it."""

        def found() -> str | None:
            return next((line for line in self.log if text in line), None)

        with self._logged:
            self._logged.wait_for(lambda: found() or self._log_ended, PATIENCE)
        line = found()
        assert line, f"never logged {text!r}, but {self.log}"
        return line

    # -- its processes, and its end ---------------------------------------------------------------

    @property
    def components(self) -> list[psutil.Process]:
        """The processes that it started itself, oldest first; a guard, also one that it has adopted
        from a conductor below it and not reaped yet, is none."""
        children = [
            each
            for each in psutil.Process(self.pid).children()
            if is_running(each) and not is_guard(each)
        ]
        return sorted(children, key=lambda child: child.pid)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def close_stdin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self) -> int:
        """Wait for its end; return the exit status. No process that it started may be left."""
        status = self.process.wait(PATIENCE)
        assert running_below() == []
        self._logger.join(PATIENCE)
        return status

    def leave(self) -> int:
        """Close its stdin, and wait for its end."""
        self.close_stdin()
        return self.wait()

    def close(self) -> None:
        """Kill it."""
        left = running_below()
        for process in left:
            process.kill()
        psutil.wait_procs(left, PATIENCE)
        self.process.wait(PATIENCE)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None and stream is not self.process.stderr:
                stream.close()
        self._logger.join(PATIENCE)
        if self.process.stderr is not None:
            self.process.stderr.close()

    def _read_log(self) -> None:
        if self.process.stderr is None:
            return
        for line in self.process.stderr:
            with self._logged:
                self.log.append(line.decode(errors="backslashreplace").rstrip("\n"))
                self._logged.notify_all()
        with self._logged:
            self._log_ended = True
            self._logged.notify_all()


def chunk(message: Message) -> str:
    """The text of an agent_message_chunk; nothing for any other message."""
    if message.get("method") != "session/update":
        return ""
    text: str = message["params"]["update"].get("content", {}).get("text", "")
    return text


def conversation(text: str = "echo hello") -> list[Message]:
    """What `printf` would send: initialize, a session and a prompt, without waiting."""
    block = {"type": "text", "text": text}
    return [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": 1}},
        {"id": 2, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}},
        {"id": 3, "method": "session/prompt", "params": {"sessionId": "s1", "prompt": [block]}},
    ]


def words(*commands: Sequence[str]) -> list[str]:
    """Commands as arguments of `agent` and `proxy`."""
    return [shlex.join(command) for command in commands]


def wait_until_idle(*pids: int) -> None:
    """Return when processes have used no CPU for a quarter of a second: each waits for another.

    The absence of an event cannot be waited for.
    """
    give_up = time.monotonic() + PATIENCE
    before: list[float] = []
    while time.monotonic() < give_up:
        now = [sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids]
        if now == before:
            return
        before = now
        threading.Event().wait(0.25)
    raise AssertionError("the processes never came to rest")
