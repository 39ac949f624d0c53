"""Package managers, npm and uv: where they are, and how they are run.

They run without a shell, with an environment of their own: a package manager, and the scripts of
packages where those are allowed, need no keys and tokens of the conductor's environment. Their
output goes to stderr; stdout belongs to the protocol.

Both look for configuration in the directories above, which may be another user's, or a project's:
`.npmrc`, `package.json` with workspaces, `uv.toml`, `pyproject.toml`. So they run in directories of
the store only, each of which is declared a project of its own (`_closed`). The configuration of the
user and of the system counts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal, TypeAlias

from conductor.errors import RegistryError
from conductor.files import read_regular, write_own
from conductor.registry.store import store_directory

__all__ = ["Tool", "find_tool", "run_tool", "tool_environment", "work_directory"]

Tool: TypeAlias = Literal["npm", "uv"]

_PASSED: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "LC_*", "TZ", "XDG_*"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
    *("npm_config_*", "NPM_CONFIG_*", "UV_*"),
    "ACP_CONDUCTOR_TREE",  # by which the orphan guard finds what is left
    *("NVM_*", "VOLTA_HOME", "FNM_*", "ASDF_*", "MISE_*", "PYENV_*"),
)
"""Variables that a package manager inherits."""
_HELP: Final = {
    "npm": "install Node.js, which brings npm and npx (nodejs.org, or the package `npm` of your"
    " system)",
    "uv": "install uv, which brings uvx (`pip install uv`, `pipx install uv`, or"
    " docs.astral.sh/uv)",
}
_RUNNERS: Final = {"npm": "npx", "uv": "uvx"}
_TIMEOUT: Final = 900.0
_MAX_LINES: Final = 8
"""Lines of the output in errors, from its beginning and again from its end."""
_FAILURE_HELP: Final = (
    "this needs the network once; check the connection, the proxy variables and the configuration"
    " of `{tool}`"
)
_NETWORK: Final = {
    "npm_config_fetch_retries": "1",
    "npm_config_fetch_retry_mintimeout": "1000",
    "npm_config_fetch_retry_maxtimeout": "2000",
    "npm_config_fetch_timeout": "13000",
    "UV_HTTP_TIMEOUT": "13",
    "UV_HTTP_RETRIES": "1",
}
"""How long a server may be silent (milliseconds for npm, seconds for uv), and how often a request
is repeated; a user's variables take precedence. By default npm repeats each request for 70 s and
waits 300 s for each answer."""
_IN_NPMRC: Final = re.compile(r"\$\{([^}?]+)\??\}")
_NOISE: Final = re.compile(
    r"npm (warn|notice)\b|npm error A complete log|npm error(  |\s*[/}]|\s*$)|\s*$"
)


def find_tool(tool: Tool) -> str:
    """The absolute path of a package manager. Raises `RegistryError` with how to install it."""
    beside = os.path.dirname(sys.executable)
    found = shutil.which(tool) or (shutil.which(tool, path=beside) if tool == "uv" else None)
    if found is None:
        runner = _RUNNERS[tool]
        message = f"`{tool}` is not installed, which `{runner}` packages need"
        raise RegistryError(f"{message} (PATH is {os.environ.get('PATH', 'empty')})", _HELP[tool])
    return found


@contextmanager
def work_directory() -> Iterator[Path]:
    """A directory of the store for `run_tool`, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="pin-", dir=store_directory("staging")) as directory:
        yield Path(directory)


def run_tool(
    tool: Tool, arguments: Sequence[str], directory: Path, what: str, input: str = ""
) -> str:
    """Run a package manager in a directory, which is in the store, and return its stdout.

    Raises `RegistryError` with lines of its output. `what` is what failed, for people.
    """
    environment = tool_environment(os.environ)
    if tool == "npm":
        environment |= _named_in_npmrc(os.environ)
    try:
        done = subprocess.run(
            [find_tool(tool), *arguments, *_closed(tool, directory)],
            cwd=directory,
            env=environment,
            input=input,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
        )
    except OSError as exc:
        raise RegistryError(f"{what}: `{tool}` cannot be run: {exc.strerror}") from None
    except subprocess.TimeoutExpired:
        raise RegistryError(f"{what}: `{tool}` took more than {_TIMEOUT:g} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if not _NOISE.match(line)]
        lines = lines[:_MAX_LINES] + lines[_MAX_LINES:][-_MAX_LINES:]
        shown = "\n".join(lines) or f"it exited with status {done.returncode}"
        raise RegistryError(f"{what}: {shown}", _help(tool, done.stderr))
    return done.stdout


def tool_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a package manager, out of the conductor's."""
    passed = {
        name: value
        for name, value in environ.items()
        if any(fnmatchcase(name, pattern) for pattern in _PASSED)
    }
    set_by_user = {name.lower() for name in passed}
    network = {name: value for name, value in _NETWORK.items() if name.lower() not in set_by_user}
    fixed = {"npm_config_update_notifier": "false", "UV_NO_PROGRESS": "1"}
    return {**passed, **network, **fixed}


def _named_in_npmrc(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that the configuration of the user names, such as `${NPM_TOKEN}`."""
    paths = map(environ.get, ("npm_config_userconfig", "NPM_CONFIG_USERCONFIG"))
    try:
        text = read_regular(next(filter(None, paths), os.path.expanduser("~/.npmrc")))
    except OSError:
        return {}
    names = _IN_NPMRC.findall(text.decode(errors="replace"))
    return {name: environ[name] for name in names if name in environ}


def _closed(tool: Tool, directory: Path) -> list[str]:
    """Options with which no configuration above the directory counts."""
    if tool == "npm":
        return [f"--prefix={directory}"]
    # A workspace of its own: uv looks no further, and merges it with those of user and system.
    write_own(directory / "pyproject.toml", b"[tool.uv.workspace]\n")
    return []


def _help(tool: Tool, output: str) -> str:
    if "EINTEGRITY" in output or "ash mismatch" in output:
        return (
            "the package is not the one that was pinned: do not use it before you know why."
            " `acp-conductor update` pins what the registry has now"
        )
    return _FAILURE_HELP.format(tool=tool)
