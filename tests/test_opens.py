"""Files are opened by `conductor.files`: it sees a link, a pipe or a device in their place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("conductor", "proxies", "bridges")

ALLOWED: dict[str, str] = {
    "conductor/files.py": "the opening functions",
    "conductor/schema/generate.py": "a tool of developers",
    "conductor/cli/new.py": "files in a new directory that the user has typed",
    "conductor/cli/prompt/display.py": "writes to stdout",
    "conductor/registry/binary.py": "files in a new private directory of the store",
    "conductor/registry/download.py": "a file in a new private directory of the store",
    "conductor/tracing/trace_file.py": "the pipe or device that the user has typed",
    "proxies/checkpoint/shadow_git.py": "files of a private repository",
}
"""Modules that open files themselves, and the reason."""

_MODULES = {"os", "posix", "io", "codecs", "gzip", "bz2", "lzma", "tarfile", "zipfile", "trio"}
_METHODS = {"read_text", "read_bytes", "write_text", "write_bytes", "touch", "open_file"}


def opens(source: str) -> Iterator[int]:
    """The lines on which a file is opened by its path; not those of the kernel and of a package."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and _opens(node) and not _is_harmless(node):
            yield node.lineno


def _opens(call: ast.Call) -> bool:
    match call.func:
        case ast.Name("open"):
            return True
        case ast.Attribute(ast.Name(module), "open") if module in _MODULES:
            return bool(call.args)
        case ast.Attribute(_, "open"):  # of a path: with a mode, or an encoding
            return any(keyword.arg in ("mode", "encoding") for keyword in call.keywords) or any(
                isinstance(each, ast.Constant) and isinstance(each.value, str)
                for each in call.args[:1]
            )
        case ast.Attribute(_, name):
            return name in _METHODS
    return False


def _is_harmless(call: ast.Call) -> bool:
    """Whether a file of `/proc` or `/dev`, of the package itself, or a directory is opened."""
    path: ast.AST = call.args[0] if call.args else call.func
    receiver = ast.unparse(call.func)
    if receiver == "open" and ast.unparse(path).startswith("open_"):  # its descriptor
        return True
    if "__file__" in receiver or "files(" in receiver or receiver in ("TABLE.read_text",):
        return True
    text = ast.unparse(call)
    return (
        any(f"{quote}/{name}/" in text for quote in "'\"" for name in ("proc", "dev"))
        or "os.devnull" in ast.unparse(path)
        or "_DIRECTORY" in text
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_files_are_opened_in_one_module(package):
    found = []
    for path in sorted((ROOT / package).rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if name not in ALLOWED:
            found += [f"{name}:{line}" for line in opens(path.read_text())]

    assert not found, "open them by a function of conductor.files:\n" + "\n".join(found)
