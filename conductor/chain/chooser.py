"""Choose the chain for each session of one client.

Without files of the user or the project and without `when:`, all sessions have the command's chain,
and a session costs a few `stat` calls: everything else is imported when it is needed. A changed
chain file, of the command too, makes a new chain for new sessions.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from conductor.chain.reloadable_chain import ReloadableChain
from conductor.errors import ChainFileError
from conductor.json_values import decode_value
from conductor.jsonrpc.json_object import member_at
from conductor.places import Stamp, find_project_file, user_chain_file

if TYPE_CHECKING:
    from conductor.chain.planner import ChainPlan, FileNotice, Planner
    from conductor.chainfile.model import ChainFile
    from conductor.jsonrpc.messages import Payload

__all__ = ["ChainChooser", "OtherFiles"]


class OtherFiles(msgspec.Struct, frozen=True, eq=False):
    """Files that are used besides that of the command."""

    user: bool = True
    project: bool = True


_ALL = OtherFiles()


class ChainChooser:
    """Chooses the chains of one client.

    `command` is the chain that the client has started, or why there is none; `load` and
    `forget_plugins` are those of `ReloadableChain`. `cwd` is the directory that the client has
    started the conductor in: that of the first chain until a session set-up starts it again.
    """

    def __init__(
        self,
        command: ChainFile | ChainFileError,
        load: Callable[[], ChainFile] | None,
        cwd: str,
        *,
        others: OtherFiles = _ALL,
        forget_plugins: Callable[[], None] = lambda: None,
    ) -> None:
        self._command = ReloadableChain(command, load, forget_plugins)
        self._cwd = self._first_cwd = cwd
        self._others = others
        self._initialize: bytes | None = None
        self._first: ChainFile | None = None
        """The command's chain at the last start of the first chain."""
        self._first_stamp: Stamp = ()
        self._is_plain = True
        """Whether the first chain is the command's as it is."""
        self._first_plan: ChainPlan | None = None
        """The plan of the first chain, when it is needed."""
        self._planner: Planner | None = None
        self._tried = False

    def likely(self) -> ChainFile | None:
        """Determine the first chain as far as it is known before `initialize`, like `first` without
        reading the command's file again; return it without the components that depend on the
        client, or `None` if a file has mistakes."""
        try:
            chain = self._first_chain()
        except ChainFileError:
            return None
        if not _has_conditions(chain):
            return chain
        certain = [
            spec
            for spec in chain.proxies
            if not any(when.client or when.capability for when in spec.when)
        ]
        return msgspec.structs.replace(chain, proxies=tuple(certain))

    def begin(self, initialize: bytes | None, setup: bytes | None = None) -> None:
        """The first chain is about to start, for these raw `initialize` params; `setup` are those
        of the session set-up that starts it again, if it is one."""
        self._initialize = initialize or b"{}"
        self._first_cwd = self._cwd if setup is None else self._directory(setup)

    def first(self) -> ChainFile:
        """The first chain. Later calls read the files again. Raises `ChainFileError`."""
        if self._tried:
            self._command.reload()
        if self._command.mistakes is not None:
            self._command.chain = self._command.mistakes
        self._tried = True
        return self._first_chain()

    def _first_chain(self) -> ChainFile:
        command = self._command.chain
        if isinstance(command, ChainFileError):
            raise command
        self._first, self._first_stamp = command, self._command.stamp
        cwd = self._first_cwd
        user, project = self._files_for(cwd)
        self._is_plain = user is None and project is None and not _has_conditions(command)
        if self._is_plain:
            self._first_plan = None
            return command
        self._first_plan = self._plan(command, cwd, user, project)
        return self._first_plan.chain

    def choose(self, setup: Payload | None) -> ChainPlan | None:
        """The chain for the session of raw set-up params: `None` if only the command's unchanged
        file applies, without `when:`; else a plan, perhaps that of the first chain (`is_first`).
        Raises `ChainFileError` if the project's file has mistakes."""
        cwd = self._directory(setup)
        user, project = self._files_for(cwd)
        is_changed = self._command.is_changed
        assert self._first is not None
        is_plain = self._is_plain and self._command.chain is self._first
        if user is None and project is None and is_plain and not is_changed:
            return None
        if is_changed:
            self._command.reload()
            if self._command.refused is not None:
                raise self._command.refused
        command, mistakes = self._command.chain, self._command.mistakes
        assert not isinstance(command, ChainFileError)
        notices: list[FileNotice] = []
        if mistakes:
            notices = self._known_planner().notices_of_mistakes(command.path, mistakes)
        return self._plan(command, cwd, user, project, notices)

    def explaining(self, mistakes: ChainFileError) -> ChainPlan:
        """The plan for a session for which `choose` has raised this: its chain does not start."""
        from conductor.chain.planner import ChainPlan

        assert self._first is not None
        return ChainPlan(self._first, mistakes=mistakes)

    def is_first(self, plan: ChainPlan) -> bool:
        """Whether a plan is that of the first chain."""
        return plan.is_same(self.first_plan)

    @property
    def first_chain(self) -> ChainFile:
        """The first chain as it was started; with components that depend on the client if no other
        file applies."""
        assert self._first is not None
        return self._first if self._first_plan is None else self._first_plan.chain

    @property
    def first_plan(self) -> ChainPlan:
        """The plan of the first chain."""
        assert self._first is not None
        if self._first_plan is None:
            plugins = tuple(each for each in self._first_stamp if each[0].endswith(".py"))
            first = self._plan(self._first, self._first_cwd, None, None)
            self._first_plan = msgspec.structs.replace(first, plugins=plugins)
        return self._first_plan

    def _plan(
        self,
        command: ChainFile,
        cwd: str,
        user: str | None,
        project: str | None,
        notices: list[FileNotice] | None = None,
    ) -> ChainPlan:
        """A plan; `notices` are `None` for the first chain, before there is a session to tell."""
        plan = self._known_planner().plan(
            command,
            user=user,
            project=project,
            cwd=cwd,
            initialize=self._initialize,
            notices=notices,
        )
        self._command.note_sandboxes(plan.chain)
        return plan

    def _known_planner(self) -> Planner:
        if self._planner is None:
            from conductor.chain.planner import Planner

            self._planner = Planner(os.environ)
        return self._planner

    def _files_for(self, cwd: str) -> tuple[str | None, str | None]:
        """The user's and the project's file for a session in `cwd`."""
        return (
            user_chain_file() if self._others.user else None,
            find_project_file(cwd) if self._others.project else None,
        )

    def _directory(self, setup: Payload | None) -> str:
        """The session's directory; without one, that in which the conductor was started."""
        try:
            return decode_value(member_at(setup or b"", "cwd") or b"", type=str)
        except ValueError:
            return self._cwd


def _has_conditions(chain: ChainFile) -> bool:
    return any(spec.when for spec in chain.flat())
