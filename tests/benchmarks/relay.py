"""The floor: a program that starts the agent and copies bytes both ways, looking at none of them.

    python relay.py AGENT ARG…

It reads and writes as much at a time as the conductor does, and waits with poll(2).
"""

import os
import select
import sys

BLOCK = 65536


def start(argv: list[str]) -> tuple[int, int]:
    """The agent's stdin and stdout."""
    (agent_in, to_agent), (from_agent, agent_out) = os.pipe(), os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, agent_in, 0), (os.POSIX_SPAWN_DUP2, agent_out, 1)]
    os.posix_spawnp(argv[0], argv, os.environ, file_actions=actions)
    os.close(agent_in)
    os.close(agent_out)
    return to_agent, from_agent


def main() -> None:
    to_agent, from_agent = start(sys.argv[1:])
    targets = {0: to_agent, from_agent: 1}
    poll = select.poll()
    for source in targets:
        poll.register(source, select.POLLIN)
    while from_agent in targets:
        for source, _ in poll.poll():
            chunk = os.read(source, BLOCK)
            target = targets[source]
            if chunk:
                written = os.write(target, chunk)
                while written < len(chunk):
                    written += os.write(target, memoryview(chunk)[written:])
            else:
                poll.unregister(source)
                os.close(targets.pop(source))


if __name__ == "__main__":
    main()
