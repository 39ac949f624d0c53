"""Sandbox of a program: its command line for bubblewrap (`bwrap`), and the environment for it.

The program sees the system's directories read-only, the workspaces, and what `read` and `write`
name. Everything else does not exist for it: the home directory is empty, and so is /tmp. It has its
own processes, session, capabilities (none) and, unless `network` is true, network. Well-known
secrets (`HIDDEN_IN_HOME`) stay hidden if a directory around them is visible.

Only paths are in the arguments; the environment is that of `bwrap`, which passes it on. This module
decides, and looks at which paths exist; `spawn` starts the result.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from glob import glob
from typing import Final, Literal

import msgspec

import conductor
from conductor.chainfile.model import ComponentSpec, Sandbox
from conductor.chainfile.paths import working_directory
from conductor.files import is_below, safe_path
from conductor.transport.spawn import SpawnError

__all__ = ["HIDDEN_IN_HOME", "PASSED_VARIABLES", "sandboxed_command", "workspaces"]

PASSED_VARIABLES: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ"),
    *("TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"),
)
"""Variables that a sandboxed program inherits, beside `pass_env` and `env`."""
HIDDEN_IN_HOME: Final = (
    *(".ssh", ".gnupg", ".pki", ".password-store", ".local/share/keyrings"),
    *(".aws", ".azure", ".kube", ".docker", ".config/gcloud", ".oci", ".terraform.d"),
    *(".config/gh", ".config/glab-cli", ".config/hub", ".config/op", ".config/sops"),
    *(".netrc", ".git-credentials", ".config/git/credentials", ".npmrc", ".pypirc"),
    *(".cargo/credentials", ".cargo/credentials.toml", ".config/pip", ".gem/credentials"),
    *(".pgpass", ".my.cnf", ".vault-token", ".env"),
    *(".bash_history", ".zsh_history", ".python_history", ".psql_history"),
    *(".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium"),
)
"""Secrets in the home directory; hidden where it is visible, unless `read` or `write` names them or
something in them."""
_SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt"),
    *("/nix/store", "/gnu/store", "/run/current-system"),
)
_SYSTEM_SECRETS: Final = (
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-"),
    *("/etc/ssl/private", "/etc/sudoers", "/etc/sudoers.d"),
)
"""Hidden, because the sandbox of root could read them."""
_PROC: Final = ("/proc/sys", "/proc/sysrq-trigger")
"""Read-only: root could change the kernel's settings without any capability."""
_SHIM: Final = (
    os.path.realpath(sys.base_prefix),
    os.path.join(os.path.dirname(os.path.dirname(conductor.__file__)), "bridges", "shim.py"),
)
"""The conductor's Python and the program that connects an agent to tools of proxies."""
_NAMESPACES: Final = (
    "--unshare-user-try",
    "--unshare-ipc",
    "--unshare-pid",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--die-with-parent",
    "--new-session",
    *("--cap-drop", "ALL"),
)
_NOT_INSTALLED: Final = (
    "its sandbox needs bubblewrap, and there is no `bwrap` on the PATH: install the package"
    " `bubblewrap` (apt, dnf, pacman, zypper, apk)"
)

_Mode = Literal["read", "write", "hide", "protect"]


class _Mount(msgspec.Struct, frozen=True):
    """A path of the machine, visible at a path in the sandbox, or hidden or read-only there."""

    inside: str
    outside: str
    mode: _Mode


def sandboxed_command(
    spec: ComponentSpec, sandbox: Sandbox, environ: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The argv that starts a component's program in its sandbox, and its environment.

    `environ` is the environment of the conductor. Raises `SpawnError` if bubblewrap is missing, a
    path does not exist, or the sandbox would not show the program.
    """
    assert spec.run is not None
    bwrap = shutil.which("bwrap", path=safe_path(environ.get("PATH", os.defpath)))
    if bwrap is None:
        raise SpawnError(_NOT_INSTALLED)
    env = _environment(spec, sandbox, environ)
    home = _home(environ)
    shared = workspaces(spec, environ)
    mounts = _mounts(sandbox, shared, home)
    program = _program(spec.run[0], env, mounts)
    directory = _directory(spec, shared, mounts)
    arguments = [bwrap, *_NAMESPACES, *([] if sandbox.network else ["--unshare-net"])]
    arguments += _file_system(mounts, home, network=sandbox.network)
    arguments += ["--chdir", directory, "--", program, *spec.run[1:]]
    return tuple(arguments), env


def workspaces(spec: ComponentSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """The writable workspaces of a sandbox, with their paths inside.

    A workspace that is named by a symbolic link has its real path too. Raises `SpawnError` if one
    does not exist, or if none is named and the working directory is not a safe default.
    """
    assert spec.sandbox is not None
    named = dict(spec.sandbox.workspaces)
    if not named:
        cwd = spec.cwd or working_directory()
        if is_below(_home(environ), cwd):
            raise SpawnError(
                f"its sandbox would show all of {cwd}: name the directories that it may write to,"
                " as `workspaces` of `sandbox`"
            )
        named = {cwd: cwd}
    for path in named:
        if not os.path.isdir(path):
            raise SpawnError(f"the workspace of its sandbox does not exist: {path}")
    return named | {
        real: inside
        for path, inside in named.items()
        if (real := os.path.realpath(path)) not in named
    }


def _is_of_system(path: str) -> bool:
    return any(is_below(path, directory) for directory in _SYSTEM)


def _home(environ: Mapping[str, str]) -> str:
    return os.path.normpath(environ.get("HOME") or os.path.expanduser("~"))


def _environment(
    spec: ComponentSpec, sandbox: Sandbox, environ: Mapping[str, str]
) -> dict[str, str]:
    patterns = (*PASSED_VARIABLES, *sandbox.pass_env)
    passed = {
        name: value
        for name, value in environ.items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    }
    return spec.environment(passed)


def _mounts(sandbox: Sandbox, shared: Mapping[str, str], home: str) -> list[_Mount]:
    """The mounts after the system's directories, in their order: outer directories first."""
    for path in sandbox.write:
        if not os.path.exists(path):
            raise SpawnError(
                f"`write` of its sandbox names a path that does not exist: {path} (create it first)"
            )
    named = [*shared, *sandbox.read, *sandbox.write]
    for path in named:
        if path == "/" or is_below(path, "/proc"):
            raise SpawnError(f"a sandbox cannot show {path}: it would isolate nothing")
    read = list(sandbox.read)
    if sandbox.network:
        read += [path for path in _SHIM if not is_below(home, path) and not _is_of_system(path)]
    visible = [
        *(_Mount(path, path, "read") for path in _SYSTEM if os.path.isdir(path)),
        *(_Mount(path, path, "read") for path in read if os.path.exists(path)),
        *(_Mount(path, path, "write") for path in sandbox.write),
        *(_Mount(inside, outside, "write") for outside, inside in shared.items()),
    ]
    secrets = [
        *_SYSTEM_SECRETS,
        *(secret for name in HIDDEN_IN_HOME if (secret := os.path.join(home, name)) not in named),
    ]
    hidden = [
        *_hidden(secrets, visible),
        *_hidden(_matching(sandbox.hide, shared), visible),
    ]
    own = [mount for mount in visible if mount.outside not in _SYSTEM]
    protected = _protected(sandbox, own, [mount.outside for mount in hidden])
    order: dict[_Mode, int] = {"read": 0, "write": 1, "hide": 2, "protect": 3}
    return sorted(
        dict.fromkeys([*own, *hidden, *protected]),
        key=lambda mount: (mount.inside.count("/"), mount.inside, order[mount.mode]),
    )


def _matching(patterns: Sequence[str], shared: Mapping[str, str]) -> Iterator[str]:
    """The existing paths that match; relative patterns are relative to each workspace."""
    for pattern in patterns:
        for root in [""] if os.path.isabs(pattern) else shared:
            yield from glob(os.path.join(root, pattern), include_hidden=True)


def _hidden(paths: Iterable[str], visible: Sequence[_Mount]) -> Iterator[_Mount]:
    """Mounts that hide these paths at all places where they are visible; links are followed."""
    for path in paths:
        if not os.path.exists(path):
            continue
        real = os.path.realpath(path)
        for inside in _inside(real, visible):
            yield _Mount(inside, real, "hide")


def _protected(
    sandbox: Sandbox, visible: Sequence[_Mount], hidden: Sequence[str]
) -> Iterator[_Mount]:
    """Read-only mounts of the protected paths where they could be written to, and writable ones of
    those that are kept; what is hidden stays so. The directories around them become mounts, too: a
    directory that is none could be renamed, and made anew."""
    for mount in visible:
        root = os.path.realpath(mount.outside)
        for path in (*sandbox.protect, *sandbox.keep) if mount.mode == "write" else ():
            if not is_below(path, root):
                continue
            hiders = [each for each in hidden if is_below(each, root) and is_below(path, each)]
            place = hiders[0] if hiders else path
            around = os.path.dirname(place)
            while place != root and around != root:
                if not any(is_below(around, each) for each in sandbox.protect):
                    inside = os.path.join(mount.inside, os.path.relpath(around, root))
                    yield _Mount(inside, around, "write")
                around = os.path.dirname(around)
            if not hiders:
                inside = os.path.normpath(os.path.join(mount.inside, os.path.relpath(path, root)))
                yield _Mount(inside, path, "protect" if path in sandbox.protect else "write")


def _inside(real: str, visible: Sequence[_Mount]) -> Iterator[str]:
    """The paths at which a real path is visible in the sandbox."""
    for mount in visible:
        outside = os.path.realpath(mount.outside)
        if is_below(real, outside):
            yield os.path.normpath(os.path.join(mount.inside, os.path.relpath(real, outside)))


def _program(program: str, env: Mapping[str, str], mounts: Sequence[_Mount]) -> str:
    """The program as an absolute path, for a readable error instead of that of `bwrap`."""
    path = env.get("PATH", os.defpath)
    found = shutil.which(program, path=path)
    if found is None:
        if os.path.dirname(program):
            reason = "not executable" if os.path.exists(program) else "no such file"
            raise SpawnError(f"{reason}: {program}")
        raise SpawnError(f"command not found: {program} (PATH is {path or 'empty'})")
    for file in dict.fromkeys((os.path.abspath(found), os.path.realpath(found))):
        if not _is_of_system(file) and not any(
            is_below(file, mount.outside) for mount in mounts if mount.mode != "hide"
        ):
            raise SpawnError(
                f"its sandbox does not show the program {file}: add the directory of its"
                " installation to `read` of `sandbox`"
            )
    return _translated(os.path.abspath(found), mounts)


def _directory(spec: ComponentSpec, shared: Mapping[str, str], mounts: Sequence[_Mount]) -> str:
    """The working directory inside: `cwd`, or the conductor's if it is visible."""
    cwd = spec.cwd or working_directory()
    if any(is_below(cwd, mount.outside) for mount in mounts if mount.mode != "hide"):
        return _translated(cwd, mounts)
    if spec.cwd is not None:
        raise SpawnError(f"its sandbox does not show its `cwd`, {cwd}: add it to `workspaces`")
    return next(iter(shared.values()))


def _translated(path: str, mounts: Sequence[_Mount]) -> str:
    """A path of the machine as a path in the sandbox."""
    around = [each for each in mounts if each.mode != "hide" and is_below(path, each.outside)]
    if not around:
        return path
    nearest = max(around, key=lambda each: len(each.outside))
    below = os.path.relpath(path, nearest.outside)
    return os.path.normpath(os.path.join(nearest.inside, below))


def _file_system(mounts: Sequence[_Mount], home: str, *, network: bool) -> Iterator[str]:
    """The arguments of `bwrap` for its file system, in the order of the mounts."""
    for path in _SYSTEM:
        if os.path.islink(path):  # /bin, where it is a link to usr/bin
            yield from ("--symlink", os.readlink(path), path)
        elif os.path.isdir(path):
            yield from ("--ro-bind", path, path)
    yield from ("--proc", "/proc", "--dev", "/dev")
    for path in _PROC:
        if os.path.exists(path):
            yield from ("--ro-bind", path, path)
    for path in ("/tmp", "/var/tmp", "/run", *([home] if home != "/" else [])):
        yield from ("--tmpfs", path)
    resolver = os.path.realpath("/etc/resolv.conf")
    if network and not is_below(resolver, "/etc") and os.path.exists(resolver):
        yield from ("--ro-bind", resolver, resolver)
    for mount in mounts:
        match mount.mode:
            case "read" | "protect":
                yield from ("--ro-bind", mount.outside, mount.inside)
            case "write":
                yield from ("--bind", mount.outside, mount.inside)
            case "hide" if os.path.isdir(mount.outside):
                yield from ("--tmpfs", mount.inside)
            case "hide":
                yield from ("--ro-bind", "/dev/null", mount.inside)
    yield from ("--remount-ro", "/")
