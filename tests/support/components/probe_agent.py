"""An agent whose prompts ask about its own process, besides those of echo_agent.py.

    env NAME     its value, or "unset"           cwd          the working directory
    environ      how many variables it has       shout N      N bytes of lines to stderr, beside it
    blocking     whether 0, 1, 2 block        descriptors  those that are open
    errors TEXT  TEXT to stderr, escapes decoded (`\\n`), then "ok"
    last TEXT    the same, then exit with status 3
    eval CODE    the value of a Python expression, or its exception

`--on-term FILE` writes "terminated" to a file at SIGTERM, and exits.

`--stubborn` goes on after the end of its input, which it tells on stderr, until it is killed.
"""

import argparse
import os
import re
import signal
import socket
import subprocess
import threading
from pathlib import Path

from echo_agent import EchoAgent
from rpc import Message

TAGGED = r"((?:\[.*?\])*)(\S*) ?(.*)"
SHOUT = (b"\x1b[31m" + b"-" * 1017 + b"\n") * 1024


class ProbeAgent(EchoAgent):
    def prompt(self, turn: Message) -> None:
        block = turn["params"]["prompt"][0]
        tags, command, argument = re.fullmatch(TAGGED, block["text"], re.S).groups()
        match command:
            case "env":
                block["text"] = f"{tags}echo {os.environ.get(argument, 'unset')}"
            case "environ":
                block["text"] = f"{tags}echo {len(os.environ)}"
            case "blocking":
                block["text"] = f"{tags}echo {' '.join(str(os.get_blocking(n)) for n in range(3))}"
            case "descriptors":
                numbers = sorted(map(int, os.listdir("/proc/self/fd")))
                block["text"] = f"{tags}echo {' '.join(map(str, numbers[:-1]))}"
            case "eval":
                block["text"] = f"{tags}echo {evaluated(argument)}"
            case "cwd":
                block["text"] = f"{tags}echo {os.getcwd()}"
            case "errors":
                os.write(2, argument.encode().decode("unicode_escape").encode())
                block["text"] = f"{tags}echo ok"
            case "last":
                os.write(2, argument.encode().decode("unicode_escape").encode())
                block["text"] = "die 3"
            case "shout":
                threading.Thread(target=shout, args=[int(argument)]).start()
                block["text"] = f"{tags}echo shouting"
        super().prompt(turn)


def evaluated(code: str) -> object:
    try:
        return eval(code, {"os": os, "socket": socket, "Path": Path, "subprocess": subprocess})
    except Exception as error:
        return type(error).__name__


def write_and_exit(path: Path) -> None:
    path.write_text("terminated")
    os._exit(0)


def shout(size: int) -> None:
    while size > 0:
        size -= os.write(2, SHOUT[:size])
    os.write(2, b"\nshouted\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stubborn", action="store_true")
    parser.add_argument("--on-term", type=Path)
    options = parser.parse_args()
    if options.on_term:
        signal.signal(signal.SIGTERM, lambda *_: write_and_exit(options.on_term))
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ProbeAgent().run()
    while options.stubborn or options.on_term:
        os.write(2, b"end of input\n")
        signal.pause()
