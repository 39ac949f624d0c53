"""The proxy that `try` runs: `file.py`, `file.py:Class`, `package.module:Class`, or as `use:`; and
the recorded agent behind it."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

import attrs

from conductor.chainfile.model import ComponentSpec
from conductor.cli.load import similar_file
from conductor.cli.try_proxy.report import failure_lines
from conductor.errors import StartError
from conductor.plugins.file_imports import import_file
from conductor.plugins.loading import (
    InvalidOptions,
    entry_points,
    instantiate,
    load_class,
    option_of_argument,
)
from conductor.proxy import Agent, Proxy
from conductor.proxy.base import Plugin
from conductor.proxy.import_guard import importing_plugin
from conductor.testing.recording import Recording

__all__ = [
    "PlayedRecording",
    "TargetError",
    "TriedProxy",
    "load_target",
    "parse_options",
    "recorded",
    "watched_directory",
]


class TargetError(Exception):
    """The proxy cannot be made: the message says what to write."""

    def __init__(self, text: str, cause: BaseException | None = None) -> None:
        super().__init__(text)
        self.cause = cause
        """The exception of the file, if it raised one."""

    @property
    def lines(self) -> list[str]:
        """The message, and the place of the exception."""
        text = str(self)
        place = [] if self.cause is None else failure_lines(self.cause)
        return [*text.splitlines(), *(f"  {line}" for line in place if line not in text)]


@attrs.frozen(eq=False)
class TriedProxy:
    """A proxy, made with its options."""

    name: str
    proxy: Proxy


def load_target(target: str, options: dict[str, Any]) -> TriedProxy:
    """Import the class and make an instance. Raises `TargetError`."""
    cls = _class(target)
    try:
        given = {
            name: option_of_argument(cls, name, value) if isinstance(value, str) else value
            for name, value in options.items()
        }
    except ValueError as exc:
        raise _wrong_options(cls, str(exc)) from exc
    spec = ComponentSpec(name=cls.__name__, use=target, options=given)
    try:
        proxy = instantiate(spec, cls)
    except InvalidOptions as exc:
        problems = "\n".join(
            each.message + (f"; {each.help}" if each.help else "") for each in exc.diagnostics
        )
        raise _wrong_options(cls, problems) from exc
    except StartError as exc:
        raise TargetError(exc.reason, exc.__cause__) from exc
    assert isinstance(proxy, Proxy)
    return TriedProxy(cls.__name__, proxy)


def _wrong_options(cls: type[Proxy], problems: str) -> TargetError:
    return TargetError(f"{cls.__name__}: its options are wrong (--with NAME=VALUE):\n{problems}")


def parse_options(settings: Iterable[str]) -> dict[str, Any]:
    """The options given as NAME=VALUE. Raises `ValueError`."""
    options: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise ValueError(f"{setting!r}: write --with NAME=VALUE")
        options[name] = value
    return options


def watched_directory(target: str) -> str:
    """The directory of the proxy's file or package: its Python files are watched for changes.

    Imports nothing but parent packages. Raises `TargetError`.
    """
    path = _file_of(target)
    if path is not None:
        return os.path.dirname(os.path.abspath(path))
    name = target.partition(":")[0]
    if ":" not in target and target in entry_points():
        name = entry_points()[target].module
    try:
        found = importlib.util.find_spec(name)
    except Exception as exc:
        raise TargetError(f"no module is called {name!r}: {exc}") from exc
    if found is None or found.origin is None:
        raise TargetError(f"no module is called {name!r}")
    return os.path.dirname(found.origin)


def _class(target: str) -> type[Proxy]:
    path = _file_of(target)
    if path is not None:
        module = _imported(lambda: import_file(path), path)
        name = target.rpartition(":")[2] if path != target else None
        return _proxy_class(module, path, name)
    if ":" in target:
        module_name, _, class_name = target.partition(":")
        sys.path.append(os.getcwd())  # last: it must not replace installed packages
        with importing_plugin():
            module = _imported(lambda: importlib.import_module(module_name), module_name)
        return _proxy_class(module, module_name, class_name)
    if target in entry_points():
        spec = ComponentSpec(name=target, use=target)
        cls = _imported(lambda: load_class(spec), target)
        return _checked(cls, target)
    raise TargetError(
        f"{target} is neither a file nor a name for `use:` (acp-conductor components lists them); "
        f"write notes.py, notes.py:Notes or package.module:Notes"
    )


def _file_of(target: str) -> str | None:
    """The path in `notes.py` and `notes.py:Notes`. Raises `TargetError` if the file is missing."""
    path, colon, _ = target.rpartition(":")
    for each in (target, path if colon else ""):
        if each.endswith((".py", ".yaml", ".yml")) or (os.sep in each and os.path.isfile(each)):
            if not os.path.exists(each):
                raise TargetError(f"no such file: {each}{_similar_file(each)}")
            if each.endswith((".yaml", ".yml")):
                raise TargetError(
                    f"{each} is a chain file; try runs one proxy, such as notes.py: "
                    f"`acp-conductor prompt {each} TEXT` runs the chain"
                )
            return each
    return None


def _similar_file(path: str) -> str:
    try:
        meant = similar_file(path, (".py",))
    except OSError:
        return ""
    return "" if meant is None else f"; did you mean {meant}?"


def _imported(load: Any, what: str) -> Any:
    try:
        return load()
    except StartError as exc:
        raise TargetError(exc.reason, exc.__cause__) from exc
    except BaseException as exc:  # code of the author
        raise TargetError(f"{what} cannot be imported:", exc) from exc


def _proxy_class(module: ModuleType, where: str, name: str | None) -> type[Proxy]:
    """The class called `name`, or the only proxy of the module."""
    if name is not None:
        found = getattr(module, name, None)
        if found is None:
            classes = ", ".join(each.__name__ for each in _plugins_of(module))
            hint = f"; it has {classes}" if classes else ""
            raise TargetError(f"{where} has no class {name!r}{hint}")
        return _checked(found, f"{where}:{name}")
    plugins = _plugins_of(module)
    proxies = [each for each in plugins if issubclass(each, Proxy)]
    if len(proxies) == 1:
        return proxies[0]
    if proxies:
        names = ", ".join(f"{where}:{each.__name__}" for each in proxies)
        raise TargetError(f"{where} has several proxies; write one of {names}")
    if plugins:
        return _checked(plugins[0], f"{where}:{plugins[0].__name__}")
    example = "".join(
        part.capitalize() for part in os.path.splitext(os.path.basename(where))[0].split("_")
    )
    others = [name for name, value in _own_classes(module) if not name.startswith("_")]
    hint = f" ({', '.join(others)}: not derived from Proxy)" if others else ""
    raise TargetError(
        f"{where} has no proxy class{hint}; write\n\n"
        f"    from conductor.proxy import Proxy, on_prompt\n\n"
        f"    class {example}(Proxy):\n"
        f"        @on_prompt\n"
        f"        async def handle(self, session, prompt, forward):\n"
        f"            return await forward()"
    )


def _plugins_of(module: ModuleType) -> list[type[Plugin]]:
    """The plugin classes that a module defines, in order."""
    return [value for _, value in _own_classes(module) if issubclass(value, Plugin)]


def _own_classes(module: ModuleType) -> list[tuple[str, type]]:
    return [
        (name, value)
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]


def _checked(found: Any, what: str) -> type[Proxy]:
    if isinstance(found, type) and issubclass(found, Proxy):
        return found
    if isinstance(found, type) and issubclass(found, Agent):
        raise TargetError(f"{what} is an agent; try runs a proxy before the built-in test agent")
    name = what.rpartition(":")[2]
    raise TargetError(f"{what} is not a proxy: its class begins with `class {name}(Proxy):`")


@attrs.frozen
class PlayedRecording:
    """A recording, and the prompts that play it."""

    file: str
    """Its name in the package, or its path."""
    prompts: Sequence[str]
    """Up to the first turn that the client cancels: `try` cancels none."""


def recorded(file: str) -> PlayedRecording:
    """Read a recording. Raises `ValueError` if it is none, `OSError` if it cannot be read."""
    recording = Recording.load(file)
    prompts = 0
    for message in recording.messages:
        if message.kind == "request" and message.method == "session/prompt":
            prompts += 1
        elif message.sender == "client" and message.method == "session/cancel":
            prompts -= 1
            break
    return PlayedRecording(file, recording.prompts[:prompts])
