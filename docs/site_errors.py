"""The reference page of errors: exit codes, JSON-RPC errors, and messages with what to do.

Made from the code: `ExitCode`, the constants of `error_codes`, the classes of `conductor.errors`,
the remedies for failed starts, and the texts in the calls that make errors.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from conductor import error_codes, errors
from conductor.chain.start_failure import REMEDIES
from conductor.exit_codes import ExitCode

__all__ = ["ErrorText", "documented", "errors_page", "texts_of"]

ROOT: Final = Path(__file__).parent.parent
_SECTIONS: Final[Mapping[str, tuple[str, Mapping[str, int]]]] = {
    "Mistakes in chain files": (
        "Each is printed with its place in the file. `…` stands for a name or value.",
        {"invalid": 0, "expected": 0, "ValueIssue": 0, "Diagnostic": 1, "_warning": 2},
    ),
    "Components that do not start": (
        "`StartError`: the reason in `component … did not start: …`.",
        {"StartError": 1, "_start_error": -1, "SpawnError": 0},
    ),
    "The registry of agents": (
        "`RegistryError`: printed by `lock`, `update`, `check` and `registry`, and the reason of a"
        " failed start.",
        {"RegistryError": 0},
    ),
    "Wrong usage": (
        "Exit code 2; also the response to `initialize` of a command that serves an editor.",
        {"UsageError": 0, "CommandLineError": 0},
    ),
    "Configuration of editors": (
        "Of `install` and `uninstall`.",
        {"ConfigFileError": 0, "FormatError": 0},
    ),
    "Prompts": ("Of `prompt`.", {"AttachmentError": 0}),
    "Violations of the protocol": (
        "`LocalProtocolError`: by a proxy; `RemoteProtocolError`: by a peer.",
        {"LocalProtocolError": 0, "RemoteProtocolError": 1},
    ),
}
"""Heading, introduction, and the position of the message in calls of these names; -1: the last."""
_REQUEST_ERRORS: Final = ("RequestError", "encode_error", "_error")
_NAMES: Final = {name for _, calls in _SECTIONS.values() for name in calls} | {*_REQUEST_ERRORS}
_ANSWERS: Final = "Errors with their own text"


class ErrorText(NamedTuple):
    """One text in the code: what is said, what to do, where it is made."""

    message: str
    help: str
    module: str


def errors_page() -> str:
    """The page."""
    lines = ["# Errors", "", "In the texts, `…` stands for what differs.", ""]
    lines += _exit_codes()
    lines += _json_rpc_errors()
    lines += _remedies()
    for heading, (about, calls) in _SECTIONS.items():
        lines += [f"## {heading}", "", about, ""]
        lines += _table(("message", "what to do", "from"), texts_of(calls))
    return "\n".join(lines)


def documented(constants: object) -> dict[str, str]:
    """The docstrings below the assignments of a module or class, by name."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(constants)))  # type: ignore[arg-type]
    body = tree.body
    if isinstance(constants, type):
        (cls,) = (each for each in body if isinstance(each, ast.ClassDef))
        body = cls.body
    found: dict[str, str] = {}
    for before, after in pairwise(body):
        match before, after:
            case (
                ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)),
                ast.Expr(value=ast.Constant(str(text))),
            ):
                found[name] = " ".join(text.split())
    return found


def texts_of(calls: Mapping[str, int]) -> list[ErrorText]:
    """The messages in calls of these functions and classes, sorted."""
    found = set()
    for path, _ in _sources():
        for function, call in _calls(path):
            position = calls.get(_called(call))
            if position is None or len(call.args) <= position or not call.args:
                continue
            help = _help(call, position, function)
            prefix = "expected " if _called(call) == "expected" else ""
            for text in _texts(call.args[position], function):
                found.add(ErrorText(prefix + text, help, path))
    return sorted(found)


def _exit_codes() -> Iterator[str]:
    yield from ("## Exit codes", "", "| code | |", "|---|---|")
    about = documented(ExitCode)
    yield from (f"| {each.value} | {_cell(about[each.name])} |" for each in ExitCode)
    yield "| 128 + n | ended by signal n: 130 after Ctrl-C, 143 after SIGTERM |"
    yield ""


def _json_rpc_errors() -> Iterator[str]:
    yield from ("## JSON-RPC errors", "", "| code | name | |", "|---|---|---|")
    about = documented(error_codes)
    for name in error_codes.__all__:
        yield f"| {getattr(error_codes, name)} | `{name}` | {_cell(about[name])} |"
    yield from (
        "",
        "Exceptions become errors with these members of `data`, for local clients:",
    )
    yield from ("", "| exception | | `data` |", "|---|---|---|")
    for cls, members in _exceptions():
        summary = (inspect.getdoc(cls) or "").split("\n\n")[0]
        shown = ", ".join(f"`{member}`" for member in members)
        yield f"| `{cls.__name__}` | {_cell(summary)} | {shown} |"
    yield from ("", "A remote client gets the name of the component and what follows, no more.")
    yield "In a trace, `error_domain` says whether an error is one of ACP or of MCP."
    yield from ("", f"### {_ANSWERS}", "")
    yield from _table(("code", "message", "from"), _answers())


def _exceptions() -> Iterator[tuple[type[errors.ConductorError], Sequence[str]]]:
    """The exception classes; the members of `data` are those of an error that has all details."""
    details = {"stderr_tail": ["line"], "location": "chain.yaml:1:1"}
    start = errors.StartError("a", "reason", command=["b"], status="exited", **details)  # type: ignore[arg-type]
    exited = errors.ComponentExited("a", "exited", **details)  # type: ignore[arg-type]
    samples = [
        start,
        exited,
        errors.ComponentError("a", "failed"),
        errors.CommandLineError("reason", "usage"),
        errors.ChainFileError(["problem"]),
    ]
    for sample in samples[:3]:
        sample.next = "it restarts"  # type: ignore[attr-defined]
    data = {type(each): each.public_details()[1] for each in samples}
    for name in errors.__all__:
        cls = getattr(errors, name)
        if isinstance(cls, type) and issubclass(cls, errors.ConductorError):
            yield cls, list(data.get(cls, ()))


def _answers() -> list[tuple[str, str, str]]:
    """Code, message and module of the errors that requests are answered with."""
    found = set()
    for path, tree in _sources():
        numbers = _numbers(tree)
        for function, call in _calls(path):
            if _called(call) in _REQUEST_ERRORS and len(call.args) >= 2:
                code = numbers.get(ast.unparse(call.args[0]))
                for text in _texts(call.args[1], function) if code is not None else ():
                    found.add((str(code), text, path))
    return sorted(found)


def _numbers(tree: ast.Module) -> dict[str, int]:
    """The numbers of a module's constants for error codes, and of those of `error_codes`."""
    known = {name: getattr(error_codes, name) for name in error_codes.__all__}
    for node in ast.walk(tree):
        match node:
            case (
                ast.Assign(targets=[ast.Name(name)], value=value)
                | ast.AnnAssign(target=ast.Name(name), value=value)
            ) if value is not None:
                text = ast.unparse(value)
                if re.fullmatch(r"-\d+", text):
                    known[name] = int(text)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(int(number))):
                known[ast.unparse(node)] = -number
    return known


def _remedies() -> Iterator[str]:
    yield from ("## A chain that does not start", "")
    yield "The error, and the answer to prompts in the chat, end with what to try:"
    yield from ("", "| text in the error | what to do |", "|---|---|")
    yield from (
        f"| {_cell(text)} | {_cell(_portable(remedy))} |" for text, remedy in REMEDIES.items()
    )
    yield ""


def _portable(text: str) -> str:
    """A text without the interpreter of this machine."""
    return text.replace(sys.executable, "python")


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    modules: dict[tuple[str, ...], list[str]] = {}
    for *cells, module in rows:
        modules.setdefault(tuple(cells), []).append(module)
    for texts, names in modules.items():
        yield f"| {' | '.join(map(_cell, texts))} | {', '.join(f'`{name}`' for name in names)} |"
    yield ""


@cache
def _sources() -> tuple[tuple[str, ast.Module], ...]:
    """Path and syntax tree of each module that calls one of `_NAMES`."""
    any_call = re.compile(rf"\b(?:{'|'.join(_NAMES)})\(")
    return tuple(
        (path.relative_to(ROOT).as_posix(), ast.parse(source))
        for package in ("conductor", "proxies", "bridges")
        for path in sorted((ROOT / package).rglob("*.py"))
        for source in [path.read_text()]
        if any_call.search(source)
    )


@cache
def _calls(path: str) -> list[tuple[ast.AST, ast.Call]]:
    """The calls that make errors, each with the innermost function around it, or the module."""
    tree, found = dict(_sources())[path], []
    around: list[tuple[ast.AST, ast.AST]] = [(tree, tree)]
    while around:
        function, node = around.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node
        if isinstance(node, ast.Call) and _called(node) in _NAMES:
            found.append((function, node))
        around += [(function, child) for child in ast.iter_child_nodes(node)]
    return found


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
    return ""


def _help(call: ast.Call, position: int, function: ast.AST) -> str:
    """The `help` of a call: the keyword, or the argument behind the message."""
    given = [each.value for each in call.keywords if each.arg == "help"]
    given += call.args[position + 1 : position + 2] if position >= 0 else []
    return "; ".join(text for each in given[:1] for text in _texts(each, function))


def _texts(node: ast.AST, function: ast.AST) -> list[str]:
    """The texts that an expression may have; none if they are made elsewhere."""
    match node:
        case ast.Constant(str(text)):
            return [text]
        case ast.JoinedStr(values=parts):
            shown = (str(each.value) if isinstance(each, ast.Constant) else "…" for each in parts)
            text = "".join(shown)
            return [text] if re.search(r"\w{2}", text) else []
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            heads, tails = _texts(left, function) or ["…"], _texts(right, function) or ["…"]
            both = [head + tail for head in heads for tail in tails]
            return [text for text in both if re.search(r"\w{2}", text)]
        case ast.IfExp(body=body, orelse=other):
            return [*_texts(body, function), *_texts(other, function)]
        case ast.Name(name):
            before = [
                each
                for each in ast.walk(function)
                if isinstance(each, ast.Assign)
                and ast.unparse(each.targets[0]) == name
                and each.lineno < node.lineno
            ]
            nearest = max(before, key=lambda each: each.lineno, default=None)
            return [] if nearest is None else _texts(nearest.value, ast.Module([], []))
    return []


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
