"""The chain of each session of one client, merged from all chain files that apply to it.

In: the command's chain, the user's and the project's file, what the client has told. Out: a
`ChainPlan`, or `None` where all sessions have the command's chain: without other files and without
`when:`, a session costs a few `stat` calls. Files are read again only if they have changed; a
changed one, of the command too, makes a new chain for new sessions. A project's file that this user
does not trust has no effect; the user gets one notice for each content. Without one that is trusted
and has changed there is no chain. If the user's or the command's file has mistakes after a change,
the chain from before is kept.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from conductor.chain.reloadable_chain import ReloadableChain, plugin_files
from conductor.chainfile.layers import merged
from conductor.chainfile.model import ChainFile
from conductor.chainfile.project_file import (
    ProjectFile,
    Untrusted,
    has_hashes,
    not_trusted_yet,
    read_trusted_file,
    read_user_file,
)
from conductor.chainfile.trust_store import UnreadableFile, read_own_file, trusted_file
from conductor.chainfile.when import Facts, agent_names, client_facts, unmet_conditions
from conductor.errors import ChainFileError
from conductor.json_values import decode_value
from conductor.jsonrpc.json_object import member_at
from conductor.log import get_logger
from conductor.places import Stamp, find_project_file, stamp, user_chain_file

if TYPE_CHECKING:
    from conductor.jsonrpc.messages import Payload

__all__ = ["ChainChooser", "ChainPlan", "FileNotice", "OtherFiles"]

log: Final = get_logger(component="conductor")


class OtherFiles(msgspec.Struct, frozen=True, eq=False):
    """Files that are used besides that of the command."""

    user: bool = True
    project: bool = True


class FileNotice(msgspec.Struct, frozen=True):
    """Text for the user, shown in the chat."""

    title: str
    detail: str


class ChainPlan(msgspec.Struct, frozen=True):
    """The chain of a session. Sessions with equal `chain` and `plugins` have one in common."""

    chain: ChainFile
    """Without nesting, and without components with a `when:` that does not hold."""
    plugins: Stamp = ()
    """Stamp of the Python files of its plugins."""
    left_out: Mapping[str, str] = {}
    """Components with a `when:` that does not hold, and the condition."""
    notices: tuple[FileNotice, ...] = ()
    mistakes: ChainFileError | None = None
    """Why there is no chain; `chain` is then that of the command."""

    def is_same(self, other: ChainPlan) -> bool:
        mistakes = str(self.mistakes) == str(other.mistakes)
        return mistakes and self.chain == other.chain and self.plugins == other.plugins

    def to_start(self) -> ChainFile:
        """The chain. Raises `ChainFileError` if there is none."""
        if self.mistakes is not None:
            raise self.mistakes
        return self.chain


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
        self._tried = False
        self._projects: dict[str, ProjectFile] = {}
        self._user: ReloadableChain | None = None
        self._told: set[tuple[str, str]] = set()

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
        notices = self._notices_of_mistakes(command.path, mistakes) if mistakes else []
        return self._plan(command, cwd, user, project, notices)

    def explaining(self, mistakes: ChainFileError) -> ChainPlan:
        """The plan for a session for which `choose` has raised this: its chain does not start."""
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

    def _plan(
        self,
        command: ChainFile,
        cwd: str,
        user: str | None,
        project: str | None,
        notices: list[FileNotice] | None = None,
    ) -> ChainPlan:
        """The chain for a session in `cwd`; `user` and `project` are files or `None`. To `notices`,
        new ones are added; they are `None` for the first chain, before there is a session to tell.
        Raises `ChainFileError`."""
        users = None if user is None else self._user_chain(user, notices)
        projects = None if project is None else self._project_chain(project, notices)
        chain = merged(command, users, projects)
        facts = Facts(os.environ, cwd, agent_names(chain))
        if self._initialize is not None:
            facts = client_facts(self._initialize, facts)
        specs = chain.flat()
        left_out = unmet_conditions(specs, facts)
        *proxies, agent = [
            spec if self._initialize is None else msgspec.structs.replace(spec, when=())
            for spec in specs
            if spec.name not in left_out
        ]
        flat = msgspec.structs.replace(chain, proxies=tuple(proxies), agent=agent)
        self._command.note_sandboxes(flat)
        return ChainPlan(flat, stamp(plugin_files(flat)), left_out, tuple(notices or ()))

    # -- other files -------------------------------------------------------------------------------

    def _files_for(self, cwd: str) -> tuple[str | None, str | None]:
        """The user's and the project's file for a session in `cwd`."""
        return (
            user_chain_file() if self._others.user else None,
            find_project_file(cwd) if self._others.project else None,
        )

    def _user_chain(self, path: str, notices: list[FileNotice] | None) -> ChainFile:
        if self._user is None:
            read = partial(read_user_file, path, os.environ)
            self._user = ReloadableChain(read(), read)
        elif self._user.is_changed:
            self._user.reload()
        chain, mistakes = self._user.chain, self._user.mistakes
        assert not isinstance(chain, ChainFileError)
        if mistakes is not None and notices is not None:
            notices += self._notices_of_mistakes(path, mistakes)
        return chain

    def _project_chain(self, path: str, notices: list[FileNotice] | None) -> ChainFile | None:
        try:
            return self._trusted_chain(path)
        except Untrusted as exc:
            if notices is not None and self._is_new(path, f"{exc} {_identity(path)}"):
                log.warning("project file not used", file=path, reason=str(exc))
                title = f"{path} {exc}: this session runs without its proxies"
                command = f"acp-conductor trust {shlex.quote(path)}"
                detail = exc.remedy or f"to see what it runs, and to trust it: {command}"
                notices.append(FileNotice(title, detail))
            return None

    def _trusted_chain(self, path: str) -> ChainFile:
        entry = trusted_file(path)
        if entry is None:
            self._projects.pop(path, None)
            raise not_trusted_yet(path)
        known = self._projects.get(path)
        if known is not None and known.files == entry.files and has_hashes(entry.files):
            return known.chain
        found = self._projects[path] = read_trusted_file(entry, os.environ)
        return found.chain

    def _notices_of_mistakes(self, path: str, error: ChainFileError) -> list[FileNotice]:
        """The notice that a changed file has mistakes and is not used; once for each mistake."""
        text = str(error)
        if not self._is_new(path, text):
            return []
        log.warning("changed chain file not used", file=path, error=text)
        title = f"{path} has changed and has mistakes: the session uses it as it was before"
        return [FileNotice(title, text.splitlines()[0] if text else "")]

    def _is_new(self, path: str, reason: str) -> bool:
        """Whether there was no notice of this before; from now on there was."""
        is_new = (path, reason) not in self._told
        self._told.add((path, reason))
        return is_new

    def _directory(self, setup: Payload | None) -> str:
        """The session's directory; without one, that in which the conductor was started."""
        try:
            return decode_value(member_at(setup or b"", "cwd") or b"", type=str)
        except ValueError:
            return self._cwd


def _has_conditions(chain: ChainFile) -> bool:
    return any(spec.when for spec in chain.flat())


def _identity(path: str) -> str:
    """Differs when the file has changed."""
    try:
        return read_own_file(path).decode(errors="replace")
    except UnreadableFile:
        return ""
