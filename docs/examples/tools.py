"""`tools`: the agent may run the commands of a list; the user is asked before each is run first.

`/commands` shows what was run.

- use: ./tools.py:Tools
  with:
    commands:
      test: [make, test]
      lint: [make, lint]
"""

import shlex
import subprocess
from datetime import timedelta

import attrs
import trio

from conductor.error_codes import INTERNAL_ERROR, INVALID_PARAMS
from conductor.proxy import Context, Proxy, RequestError, per_session, slash, tool


@attrs.define
class Tools(Proxy):
    """Let the agent run the commands of a list."""

    commands: dict[str, list[str]]
    timeout: timedelta = timedelta(minutes=5)

    approved = per_session(set)
    runs = per_session(list)

    @tool
    async def list_commands(self) -> dict[str, str]:
        """List the commands of this project by name."""
        return {name: shlex.join(command) for name, command in self.commands.items()}

    @tool
    async def run_command(self, name: str, context: Context) -> str:
        """Run a command of this project, in its directory.

        Args:
            name: The name that `list_commands` shows.
        """
        session = context.session
        if name not in self.commands:
            raise RequestError(INVALID_PARAMS, f"There is no command {name}: call list_commands")
        if name not in self.approved[session.id]:
            asked = shlex.join(self.commands[name])
            if not await session.ask(asked, "For the rest of the session.", kind="execute"):
                return "The user refused."
            self.approved[session.id].add(name)
        with trio.move_on_after(self.timeout.total_seconds()):
            done = await trio.run_process(
                self.commands[name],
                cwd=session.cwd,
                capture_stdout=True,
                stderr=subprocess.STDOUT,
                check=False,
            )
            self.runs[session.id].append(f"{name}: exit status {done.returncode}")
            return done.stdout.decode(errors="replace")[-20_000:]
        self.runs[session.id].append(f"{name}: took too long")
        raise RequestError(INTERNAL_ERROR, f"{name} took longer than {self.timeout}")

    @slash("commands", "Show the commands that the agent has run")
    async def show(self, session, arguments):
        return "\n".join(self.runs[session.id]) or "None was run."
