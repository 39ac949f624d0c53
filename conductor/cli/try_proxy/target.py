"""The proxy that `try` runs: `file.py`, `file.py:Class`, `package.module:Class`, or as `use:`; and
the recorded agent behind it."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

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
from conductor.tracing.records import RequestRecord

__all__ = ["TargetError", "load_target", "parse_options", "recorded_prompts"]


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


def load_target(target: str, options: Mapping[str, Any]) -> Proxy:
    """Import the class and make an instance. Raises `TargetError`."""
    cls = _class(target)
    try:
        given = {
            name: option_of_argument(cls, name, value) if isinstance(value, str) else value
            for name, value in options.items()
        }
        made = instantiate(ComponentSpec(name=cls.__name__, use=target, options=given), cls)
    except ValueError as exc:
        raise _wrong_options(cls, str(exc)) from exc
    except InvalidOptions as exc:
        problems = "\n".join(
            each.message + (f"; {each.help}" if each.help else "") for each in exc.diagnostics
        )
        raise _wrong_options(cls, problems) from exc
    except StartError as exc:
        raise TargetError(exc.reason, exc.__cause__) from exc
    assert isinstance(made, Proxy)
    return made


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


def _class(target: str) -> type[Proxy]:
    path = _file_of(target)
    if path is not None and path == target:
        return _only_proxy(_imported(lambda: import_file(target), target), target)
    if path is not None or target in entry_points():
        spec = ComponentSpec(name=target, use=target)
        return _checked(_imported(lambda: load_class(spec), target), target)
    if ":" not in target:
        raise TargetError(
            f"{target} is neither a file nor a name for `use:` (acp-conductor components lists "
            f"them); write notes.py, notes.py:Notes or package.module:Notes"
        )
    module_name, _, class_name = target.partition(":")
    sys.path.append(os.getcwd())  # last: it must not replace installed packages
    with importing_plugin():
        module = _imported(lambda: importlib.import_module(module_name), module_name)
    if not hasattr(module, class_name):
        raise TargetError(f"{module_name} has no class {class_name!r}")
    return _checked(getattr(module, class_name), target)


def _file_of(target: str) -> str | None:
    """The path in `notes.py` and `notes.py:Notes`. Raises `TargetError` if the file is missing."""
    path, colon, _ = target.rpartition(":")
    for each in (target, path if colon else ""):
        if each.endswith((".py", ".yaml", ".yml")) or (os.sep in each and os.path.isfile(each)):
            if not os.path.exists(each):
                with suppress(OSError):
                    if (meant := similar_file(each, (".py",))) is not None:
                        raise TargetError(f"no such file: {each}; did you mean {meant}?")
                raise TargetError(f"no such file: {each}")
            if each.endswith((".yaml", ".yml")):
                raise TargetError(
                    f"{each} is a chain file; try runs one proxy, such as notes.py: "
                    f"`acp-conductor prompt {each} TEXT` runs the chain"
                )
            return each
    return None


def _imported(load: Any, what: str) -> Any:
    try:
        return load()
    except StartError as exc:
        raise TargetError(exc.reason, exc.__cause__) from exc
    except BaseException as exc:  # code of the author
        raise TargetError(f"{what} cannot be imported:", exc) from exc


def _only_proxy(module: ModuleType, where: str) -> type[Proxy]:
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]
    plugins = [each for each in own if issubclass(each, Plugin)]
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
    others = [each.__name__ for each in own if not each.__name__.startswith("_")]
    hint = f" ({', '.join(others)}: not derived from Proxy)" if others else ""
    raise TargetError(
        f"{where} has no proxy class{hint}; write\n\n"
        f"    from conductor.proxy import Proxy, on_prompt\n\n"
        f"    class {example}(Proxy):\n"
        f"        @on_prompt\n"
        f"        async def handle(self, session, prompt, forward):\n"
        f"            return await forward()"
    )


def _checked(found: Any, what: str) -> type[Proxy]:
    if isinstance(found, type) and issubclass(found, Proxy):
        return found
    if isinstance(found, type) and issubclass(found, Agent):
        raise TargetError(f"{what} is an agent; try runs a proxy before the built-in test agent")
    name = what.rpartition(":")[2]
    raise TargetError(f"{what} is not a proxy: its class begins with `class {name}(Proxy):`")


def recorded_prompts(file: str) -> Sequence[str]:
    """The prompts of a recording, up to the first turn that its client cancels: `try` cancels none.

    Raises `ValueError` if it is none, `OSError` if it cannot be read.
    """
    recording = Recording.load(file)
    prompts = 0
    for message in recording.messages:
        if message.method == "session/prompt" and isinstance(message, RequestRecord):
            prompts += 1
        elif message.method == "session/cancel" and message.toward == "agent":
            prompts -= 1
            break
    return recording.prompts[:prompts]
