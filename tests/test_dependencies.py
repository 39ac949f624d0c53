"""Dependencies: private parts in use exist and have upper bounds; what is imported is declared."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions, version
from pathlib import Path
from pkgutil import resolve_name
from types import CodeType, FunctionType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent

BOUNDED = "server/websocket/bounded.py"
TCP = "network/hypercorn_connection.py"
PRIVATE = [
    # distribution, class or module, private or undocumented names, the module that uses them
    (
        "trio-websocket",
        "trio_websocket:WebSocketConnection",
        "_reader_task _get_request _handle_message_event _send _recv_channel _close_reason"
        " _reader_running _message_size _message_parts",
        BOUNDED,
    ),
    ("hypercorn", "hypercorn.protocol.h2", "WSStream", BOUNDED),
    ("hypercorn", "hypercorn.protocol.h11", "WSStream", BOUNDED),
    (
        "hypercorn",
        "hypercorn.protocol.ws_stream:WSStream",
        "handle _handle_events _send_wsproto_event app_put buffer closed config connection send"
        " state stream_id",
        BOUNDED,
    ),
    ("hypercorn", "hypercorn.protocol.ws_stream:ASGIWebsocketState", "CLOSED", BOUNDED),
    ("hypercorn", "hypercorn.protocol.ws_stream", "FrameTooLargeError", BOUNDED),
    (
        "hypercorn",
        "hypercorn.trio.tcp_server:TCPServer",
        "_read_data idle_task protocol protocol_send run",
        TCP,
    ),
    ("hypercorn", "hypercorn.protocol:ProtocolWrapper", "protocol", TCP),
    ("hypercorn", "hypercorn.protocol.h2:H2Protocol", "stream_buffers", TCP),
    ("hypercorn", "hypercorn.protocol.h2:StreamBuffer", "close", TCP),
    ("hypercorn", "hypercorn.trio.worker_context:WorkerContext", "", TCP),
    ("hypercorn", "hypercorn.app_wrappers:ASGIWrapper", "", TCP),
]


@pytest.mark.parametrize(("distribution", "path", "names", "user"), PRIVATE)
def test_private_parts_of_dependencies_exist(
    distribution: str, path: str, names: str, user: str
) -> None:
    try:
        owner = resolve_name(path)
    except (ImportError, AttributeError):
        told = f"{distribution} {version(distribution)} lacks {path}"
        pytest.fail(f"{told}: conductor/{user} needs it")

    missing = sorted(set(names.split()) - _names(owner))

    assert not missing, (
        f"{path} of {distribution} {version(distribution)} lacks {', '.join(missing)}:"
        f" conductor/{user} needs them"
    )


@pytest.mark.parametrize("distribution", sorted({row[0] for row in PRIVATE}))
def test_dependencies_with_private_parts_in_use_have_an_upper_bound(distribution: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = {found.name: found for found in map(Requirement, project["dependencies"])}

    assert any(bound.operator == "<" for bound in required[distribution].specifier)


def _names(owner: object) -> set[str]:
    """Return the attributes of a class or module; of a class also those that its methods set."""
    names = set(dir(owner))
    for base in owner.__mro__ if isinstance(owner, type) else ():
        for member in vars(base).values():
            if isinstance(code := getattr(_function(member), "__code__", None), CodeType):
                names.update(code.co_names)
    return names


def _function(member: object) -> object:
    member = getattr(member, "__wrapped__", member)
    return member if isinstance(member, FunctionType) else getattr(member, "__func__", member)


def test_the_script_that_installs_other_versions_names_tests_that_exist() -> None:
    script = (ROOT / ".ci" / "dependencies").read_text()
    named = re.findall(r"\btests/[\w/.]+", script)

    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


OF_OTHERS = {"annotationlib", "outcome", "pydantic", "pytest", "requests", "typing_extensions"}
"""Modules of Python's next versions, of trio, mcp and the SDK of OpenTelemetry, and of tests."""


def test_what_the_program_imports_is_installed_with_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = {
        canonicalize_name(Requirement(each).name)
        for each in (*project["dependencies"], *extras["metrics"], *extras["otel"])
    }
    of_distribution = packages_distributions()
    missing = {
        f"{path}: {name}"
        for package in ("conductor", "proxies", "bridges")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in _imported(node)
        if name not in {*sys.stdlib_module_names, *OF_OTHERS, "conductor", "proxies", "bridges"}
        and declared.isdisjoint(map(canonicalize_name, of_distribution.get(name, ())))
    }

    assert missing == set()


def _imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names):
            return [each.name.split(".")[0] for each in names]
        case ast.ImportFrom(str(module), level=0):
            return [module.split(".")[0]]
    return []
