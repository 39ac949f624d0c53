"""Package managers, npm and uv: where they are, and how they are run.

They run without a shell, with an environment of their own: a package manager, and the scripts of
packages where those are allowed, need no keys and tokens of the conductor's environment. What they
print goes to stderr; stdout belongs to the protocol.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal, TypeAlias

from conductor.errors import RegistryError
from conductor.registry.size_limit import SizeWatch, limit_file_size

__all__ = ["Tool", "find_tool", "run_tool", "tool_environment"]

Tool: TypeAlias = Literal["npm", "uv"]

_PASSED: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "LC_*", "TZ", "XDG_*"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
    *("npm_config_*", "NPM_CONFIG_*", "UV_*"),
    "ACP_CONDUCTOR_TREE",  # by which `reap` finds what is left
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
"""Of the beginning and of the end of the output, in errors."""
_FAILURE_HELP: Final = (
    "this needs the network once; check the connection, the proxy variables and the configuration"
    " of `{tool}`"
)
_NOISE: Final = re.compile(
    r"npm (warn|notice)\b|npm error A complete log|npm error\s+/|npm error\s*$|\s*$"
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


def run_tool(
    tool: Tool, arguments: Sequence[str], directory: Path, what: str, input: str | None = None
) -> str:
    """Run a package manager in a directory and return its stdout.

    Raises `RegistryError` with the last lines of its output. `what` is what failed, for people.
    """
    try:
        process = subprocess.Popen(
            [find_tool(tool), *arguments],
            cwd=directory,
            env=tool_environment(os.environ),
            stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            preexec_fn=limit_file_size,
        )
    except OSError as exc:
        raise RegistryError(f"{what}: `{tool}` cannot be run: {exc.strerror}") from None
    with process, SizeWatch(directory, process.kill) as watch:
        try:
            stdout, stderr = process.communicate(input, _TIMEOUT)
        except subprocess.TimeoutExpired:
            raise RegistryError(f"{what}: `{tool}` took more than {_TIMEOUT:g} s") from None
        finally:
            process.kill()
    if watch.excess is not None:
        raise RegistryError(f"{what}: it is larger than {watch.excess}: refused")
    if process.returncode:
        lines = [line for line in stderr.splitlines() if not _NOISE.match(line)]
        lines = lines[:_MAX_LINES] + lines[_MAX_LINES:][-_MAX_LINES:]
        shown = "\n".join(lines) or f"it exited with status {process.returncode}"
        raise RegistryError(f"{what}: {shown}", _help(tool, stderr))
    return stdout


def tool_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a package manager, out of the conductor's."""
    passed = {
        name: value
        for name, value in environ.items()
        if any(fnmatchcase(name, pattern) for pattern in _PASSED)
    }
    return {**passed, "npm_config_update_notifier": "false", "UV_NO_PROGRESS": "1"}


def _help(tool: Tool, output: str) -> str:
    if "EINTEGRITY" in output or "ash mismatch" in output:
        return (
            "the package is not the one that was pinned: do not use it before you know why."
            " `acp-conductor update` pins what the registry has now"
        )
    return _FAILURE_HELP.format(tool=tool)
