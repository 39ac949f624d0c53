"""A component that misbehaves on demand; otherwise echo_agent.py, or pass_proxy.py (--proxy).

The flags combine. METHOD is also looked for inside the envelope, and acts when it is received.
What `--garbage` prints: noise, truncated JSON, scalars, blank lines, ANSI codes before valid
messages, and messages in two halves. `--fork-child` prints `child PID` on stderr; with `session`
the child leaves the process group.

`--fault KIND --at WHEN`: kill, stop (SIGSTOP), exit0, exit1, close-stdout, close-stdin, half-line
(and exit), garbage, flood (32 MB of notifications), silent (reads on, and does nothing); WHEN is
`start`, `eof`, `answer` (any that it gets) or a method. `--once PATH`: only the first process that
gets so far misbehaves.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from itertools import cycle

from echo_agent import EchoAgent
from echo_agent import arguments as agent_arguments
from pass_proxy import PassProxy, arguments
from rpc import Component, Message

NOISE_LINES = [b"Loading...\n", b"\n", b'{"jsonrpc":"2.0","id":\n', b"42\n", b"\x1b[2K\x1b[32m"]
NOISE = cycle(NOISE_LINES)
FAULTS = ("kill", "stop", "exit0", "exit1", "close-stdout", "close-stdin", "half-line", "garbage",
          "flood", "silent")  # fmt: skip


class Misbehaving(Component):
    """The flags, as a layer over a component's `handle` and `write`."""

    options: argparse.Namespace
    silent = False

    def receive(self, message: Message) -> None:
        if "method" not in message and self.options.at == "answer":
            self.fault()
        super().receive(message)

    def fault(self) -> None:
        if not first(self.options.once):
            return
        match self.options.fault:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "exit0" | "exit1" as how:
                print("about to exit", file=sys.stderr, flush=True)
                os._exit(int(how[-1]))
            case "close-stdout":
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            case "close-stdin":
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                wait_forever()
            case "half-line":
                Component.write(self, b'{"jsonrpc":"2.0","id":1,"res')
                os._exit(1)
            case "garbage":
                for line in NOISE_LINES * 200:
                    Component.write(self, line)
            case "flood":
                line = b'{"jsonrpc":"2.0","method":"_flood","params":{"x":"%b"}}\n' % (b"-" * 950)
                for _ in range(32):
                    Component.write(self, line * 1000)
            case "silent":
                self.silent = True

    def handle(self, message: Message) -> None:
        options, params = self.options, message.get("params")
        inner = params.get("method") if isinstance(params, dict) else None
        methods = {message["method"], inner} - {None}
        if options.at in methods:
            self.fault()
        if self.silent:
            return
        if options.exit_on in methods:
            os.kill(os.getpid(), options.signal)  # signal 0 does nothing
            os._exit(options.status)
        if options.close_stdout_on in methods:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if options.hang_on not in methods:
            super().handle(message)
        if options.no_read in methods:
            wait_forever()

    def write(self, data: bytes) -> None:
        half = len(data) // 2
        noise = (next(NOISE), next(NOISE)) if self.options.garbage else ()
        for part in (*noise, data[:half], data[half:]) if noise else (data,):
            super().write(part)


class Agent(Misbehaving, EchoAgent): ...


class Proxy(Misbehaving, PassProxy): ...


def first(path: str | None) -> bool:
    """Whether this is the first process that comes here."""
    if path is None:
        return True
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def wait_forever() -> None:
    while True:
        signal.pause()


def main() -> None:
    parser = arguments(argparse.ArgumentParser(description=__doc__))
    for flag in ("garbage", "ignore-eof", "ignore-term", "proxy"):
        parser.add_argument(f"--{flag}", action="store_true")
    for flag in ("close-stdout-on", "exit-on", "hang-on"):
        parser.add_argument(f"--{flag}", metavar="METHOD")
    for flag in ("signal", "status", "stderr-bytes"):
        parser.add_argument(f"--{flag}", type=int, default=0)
    parser.add_argument("--exit-at-start", metavar="STATUS", type=int)
    parser.add_argument("--fork-child", choices=["group", "session"], nargs="?", const="group")
    parser.add_argument("--no-read", metavar="METHOD", nargs="?", const="*")
    parser.add_argument("--fault", choices=FAULTS)
    parser.add_argument("--at", metavar="WHEN")
    parser.add_argument("--once", metavar="PATH")
    options = agent_arguments(parser).parse_args()
    misbehave_at_start(options)
    component = Proxy(options) if options.proxy else Agent()
    component.options = options
    if isinstance(component, Agent):
        component.back, component.only = options.back, options.only
    if options.at == "start":
        component.fault()
    if options.no_read != "*":
        component.run()
    if options.at == "eof":
        component.fault()
    if options.garbage:
        component.write(b"half a line")
    if options.ignore_eof or options.no_read:
        wait_forever()


def misbehave_at_start(options: argparse.Namespace) -> None:
    if options.ignore_term:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    if options.fork_child:
        import subprocess

        sleep = [sys.executable, "-c", "import signal; signal.pause()"]
        child = subprocess.Popen(sleep, start_new_session=options.fork_child == "session")
        print("child", child.pid, file=sys.stderr, flush=True)
    for _ in range(options.stderr_bytes // 1000):
        os.write(2, b"-" * 999 + b"\n")
    if options.exit_at_start is not None:
        print(f"leaving at once with {options.exit_at_start}", file=sys.stderr, flush=True)
        os._exit(options.exit_at_start)


if __name__ == "__main__":
    main()
