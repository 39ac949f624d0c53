"""The chain of a session, merged from all chain files that apply to it.

In: the command's chain, the user's and the project's file, what the client has told. Out: a
`ChainPlan`. Files are read again only if they have changed. A project's file that this user does
not trust has no effect; the user gets one notice for each content. Without one that is trusted and
has changed there is no chain. If the user's file has mistakes
after a change, the chain from before is kept.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import partial
from typing import Final

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
from conductor.log import get_logger
from conductor.places import Stamp, stamp

__all__ = ["ChainPlan", "FileNotice", "Planner"]

log: Final = get_logger(component="conductor")


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


class Planner:
    """Makes the plans for the sessions of one client."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._projects: dict[str, ProjectFile] = {}
        self._user: ReloadableChain | None = None
        self._told: set[tuple[str, str]] = set()

    def plan(
        self,
        command: ChainFile,
        *,
        user: str | None,
        project: str | None,
        cwd: str,
        initialize: bytes | None,
        notices: list[FileNotice] | None = None,
    ) -> ChainPlan:
        """The chain for a session in `cwd`. `user` and `project` are files or `None`;
        `initialize` is what the client sent, if it is known. To `notices`, new ones are added,
        unless it is `None`. Raises `ChainFileError`."""
        users = None if user is None else self._user_chain(user, notices)
        projects = None if project is None else self._project_chain(project, notices)
        chain = merged(command, users, projects)
        facts = Facts(self._environ, cwd, agent_names(chain))
        if initialize is not None:
            facts = client_facts(initialize, facts)
        specs = chain.flat()
        left_out = unmet_conditions(specs, facts)
        *proxies, agent = [
            spec if initialize is None else msgspec.structs.replace(spec, when=())
            for spec in specs
            if spec.name not in left_out
        ]
        flat = msgspec.structs.replace(chain, proxies=tuple(proxies), agent=agent)
        return ChainPlan(flat, stamp(plugin_files(flat)), left_out, tuple(notices or ()))

    def told(self, path: str, reason: str) -> bool:
        """Whether there was a notice of this before; from now on there was."""
        known = (path, reason) in self._told
        self._told.add((path, reason))
        return known

    def _user_chain(self, path: str, notices: list[FileNotice] | None) -> ChainFile:
        if self._user is None:
            read = partial(read_user_file, path, self._environ)
            self._user = ReloadableChain(read(), read)
        elif self._user.is_changed:
            self._user.reload()
        chain, mistakes = self._user.chain, self._user.mistakes
        assert not isinstance(chain, ChainFileError)
        if mistakes is not None and notices is not None:
            notices += self.notices_of_mistakes(path, mistakes)
        return chain

    def notices_of_mistakes(self, path: str, error: ChainFileError) -> list[FileNotice]:
        """The notice that a changed file has mistakes and is not used; once for each mistake."""
        text = str(error)
        if self.told(path, text):
            return []
        log.warning("changed chain file not used", file=path, error=text)
        title = f"{path} has changed and has mistakes: the session uses it as it was before"
        return [FileNotice(title, text.splitlines()[0] if text else "")]

    def _project_chain(self, path: str, notices: list[FileNotice] | None) -> ChainFile | None:
        try:
            return self._trusted_chain(path)
        except Untrusted as exc:
            if notices is not None and not self.told(path, f"{exc} {_identity(path)}"):
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
        found = self._projects[path] = read_trusted_file(entry, self._environ)
        return found.chain


def _identity(path: str) -> str:
    """Differs when the file has changed."""
    try:
        return read_own_file(path).decode(errors="replace")
    except UnreadableFile:
        return ""
