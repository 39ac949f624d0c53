"""The chain of a command: of a file or of arguments, and served on stdin and stdout.

Shared by `run`, `agent`, `wrap`, `proxy`, `connect` and `serve`, which has transports of its own.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias

import attrs

from conductor.chain.build import bridge_component, components_of, spec_of, spec_of_plan
from conductor.chain.chooser import ChainChooser, OtherFiles
from conductor.chain.components import ChainSpec
from conductor.chain.login_words import AgentLogin, terminal_login_of
from conductor.chain.reloadable_chain import ReloadableChain
from conductor.chain.session_chains import ChainChoice
from conductor.chain.start_failure import FailureContext
from conductor.chain.stdio_server import serve_stdio
from conductor.chainfile.model import ChainFile, ComponentSpec, OnStartFailure
from conductor.chainfile.paths import working_directory
from conductor.cli.load import RequiredKind, load_chain, report
from conductor.errors import ChainFileError, CommandLineError
from conductor.routing.component import Component

if TYPE_CHECKING:
    from conductor.tracing.trace_writer import TraceWriter

__all__ = ["ChainRun", "forget_plugin_files", "is_pipe"]

Mode: TypeAlias = Literal["agent", "proxy"]


@attrs.frozen(eq=False)
class ChainRun:
    """A chain that a command serves, or why there is none: its client is told."""

    known: ChainFile | ChainFileError | CommandLineError
    mode: Mode
    on_start_failure: OnStartFailure | None = None
    """Overrides the setting of the file."""
    others: OtherFiles | None = None
    """Which files of the user and the project are used besides, if any."""
    path: str | None = None
    """The chain file; `None`: the chain is one of arguments."""
    load: Callable[[], ChainFile] | None = None
    """Reads the file again, for a later attempt to start; raises `ChainFileError`."""

    @classmethod
    def of_components(
        cls,
        components: Sequence[ComponentSpec],
        mode: Mode = "agent",
        on_start_failure: OnStartFailure = "error",
    ) -> ChainRun:
        """The chain of components on the command line, the last of which is the agent, if any."""
        proxies, agent = (
            (components, None) if mode == "proxy" else (components[:-1], components[-1])
        )
        chain = ChainFile(
            path="<command line>", name="conductor", proxies=tuple(proxies), agent=agent
        )
        return cls(chain, mode, on_start_failure)

    @classmethod
    def of_file(
        cls,
        path: str,
        need: RequiredKind = "either",
        on_start_failure: OnStartFailure | None = None,
        others: OtherFiles | None = None,
        load: Callable[[], ChainFile] | None = None,
    ) -> ChainRun:
        """The chain of a file, or its mistakes. `load` reads it; by default, a chain of the kind
        `need`; for either kind the file may be a pipe."""
        # A file that becomes a pipe later must not be waited for.
        special = need == "either" and is_pipe(path)
        load = load or partial(load_chain, path, need, allow_special_files=special)
        known: ChainFile | ChainFileError
        try:
            known = load()
            is_proxy = known.agent is None
        except ChainFileError as exc:
            known, is_proxy = exc, need == "proxies"
        mode: Mode = "proxy" if is_proxy else "agent"
        return cls(known, mode, on_start_failure, others, path, None if is_pipe(path) else load)

    def serve(self, trace: TraceWriter | None = None) -> NoReturn:
        """Serve the chain on stdin and stdout: to an editor if it has an agent, else to a
        conductor. Mistakes of the file are reported on stderr, and to the client unless stdin is a
        terminal. `trace` gets all messages."""
        chain, chooser = self.known, self._chooser()
        if isinstance(chain, ChainFile):
            self._note_for_terminals(chain)
            if chooser is not None:
                chain = chooser.likely() or chain
            if chain.prewarm and self.mode == "agent":
                from conductor.chain.launchers import local_programs
                from conductor.transport.spawn import prestart_all

                prestart_all(local_programs(chain))
        elif isinstance(chain, ChainFileError):
            report(chain)
            if os.isatty(0):
                sys.exit(2)
        is_login_kept = self.mode == "proxy" or isinstance(chain, CommandLineError)
        serve_stdio(
            self._spec(chain, self._maker(chooser)),
            name=chain.name if isinstance(chain, ChainFile) else "conductor",
            failure_context=self._failure_context(),
            unusable=not isinstance(chain, ChainFile),
            trace=trace,
            choice=None if chooser is None else ChainChoice(chooser, spec_of_plan),
            terminal_login="kept" if is_login_kept else terminal_login_of(sys.argv[1:]),
        )

    def log_in(self, login: AgentLogin) -> NoReturn:
        """Run the agent alone in this terminal, for its login; mistakes exit with 2."""
        from conductor.cli.agent_alone import run_agent_alone

        chain, chooser = self.chain_or_exit(), self._chooser()
        likely = None if chooser is None else chooser.likely()
        run_agent_alone((likely or chain).flat(), login.args, login.env)

    def chain_or_exit(self) -> ChainFile:
        """The chain; prints the mistakes of the file and exits with 2 if it has any."""
        if isinstance(self.known, ChainFile):
            return self.known
        assert isinstance(self.known, ChainFileError)
        report(self.known)
        sys.exit(2)

    def files(self) -> ReloadableChain:
        """The chain, whose files are read again after changes."""
        assert not isinstance(self.known, CommandLineError)
        return ReloadableChain(self.known, self.load, forget_plugin_files)

    def _chooser(self) -> ChainChooser | None:
        """The chooser for the chain of each session; `None`: all have the same."""
        if self.others is None or self.mode == "proxy" or isinstance(self.known, CommandLineError):
            return None
        return ChainChooser(
            self.known,
            self.load,
            working_directory(),
            others=self.others,
            forget_plugins=forget_plugin_files,
        )

    def _maker(self, chooser: ChainChooser | None) -> Callable[[], Sequence[Component]]:
        """A function that makes the components of each attempt to start, from what the files have
        then."""
        if chooser is not None:
            return lambda: components_of(chooser.first())
        if isinstance(mistake := self.known, CommandLineError):
            return partial(_fail, mistake)
        files, is_tried = self.files(), False

        def make() -> Sequence[Component]:
            nonlocal is_tried
            if is_tried:
                files.reload()
            is_tried = True
            found = files.mistakes or files.chain
            if isinstance(found, ChainFileError):
                raise found
            return components_of(found)

        return make

    def _spec(self, chain: object, make: Callable[[], Sequence[Component]]) -> ChainSpec:
        if not isinstance(chain, ChainFile):
            return ChainSpec(make, self.mode)
        spec = spec_of(chain, make)
        if self.mode == "agent":
            return spec
        make_bridge = partial(bridge_component, chain.mcp_bridge, chain.limits, start=chain.mcp)
        return attrs.evolve(spec, make_bridge=make_bridge)

    def _failure_context(self) -> FailureContext | None:
        """What the chat is told if the chain does not start; `None`: `initialize` fails."""
        setting = self.on_start_failure or getattr(self.known, "on_start_failure", None)
        if (setting or "explain") != "explain" or self.mode == "proxy":
            return None
        file = None if self.path is None else os.path.abspath(self.path)
        return FailureContext(file=file, log=_stderr_file())

    def _note_for_terminals(self, chain: ChainFile) -> None:
        """Say on stderr that an editor is awaited, if stdin and stderr are a terminal."""
        if self.path is None or chain.agent is None or not (os.isatty(0) and os.isatty(2)):
            return
        import shlex

        print(
            "note: this waits for the messages of an editor; to ask the agent in a terminal, press "
            f"Ctrl-C and run `acp-conductor prompt {shlex.quote(self.path)} TEXT`",
            file=sys.stderr,
            flush=True,
        )


def is_pipe(path: str) -> bool:
    """Whether a path is a pipe, as in `run <(make-a-chain)`."""
    return os.path.exists(path) and not os.path.isfile(path)


def forget_plugin_files() -> None:
    """Drop imported plugin files, so that a corrected file is imported again."""
    if "conductor.plugins.file_imports" in sys.modules:
        from conductor.plugins.file_imports import forget_imported_files

        forget_imported_files()


def _fail(mistake: CommandLineError) -> NoReturn:
    raise mistake


def _stderr_file() -> str | None:
    """The file that stderr is redirected to; None if unknown."""
    try:
        if stat.S_ISREG(os.fstat(2).st_mode):
            return os.readlink("/proc/self/fd/2")
    except OSError:
        pass
    return None
