"""`acp-conductor components [NAME]`"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from datetime import timedelta
from typing import Final, Literal, TypeAlias, get_args, get_origin

import click
import msgspec

from conductor.cli.arguments import complete_component
from conductor.json_values import decode_value

__all__ = ["command"]

_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_WIDTH: Final = 92


@click.command("components")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_component)
def command(names: tuple[str, ...]) -> None:
    """List the names for `use:`: components of installed packages, with their options.

    With a name, also what each option means. An option with `=` has a default. The components'
    modules are imported, in another process. A class in a local file needs no installation:
    `use: ./file.py:Class`.

    \b
    Examples:
      acp-conductor components
      acp-conductor components redact usage
    """
    from conductor.chainfile.model import START_TIMEOUT
    from conductor.cli.plugin_process import ask_each
    from conductor.plugins.loading import entry_points

    known = entry_points()
    if unknown := [name for name in names if name not in known]:
        from conductor.chainfile.diagnostics import closest_match

        near = closest_match(unknown[0], known)
        hint = f" Did you mean {near!r}?" if near else ""
        raise click.UsageError(f"no installed package has a component called {unknown[0]!r}.{hint}")
    failed = False
    questions = {name: (name, bool(names)) for name in names or sorted(known)}
    for _, text, error in ask_each("conductor.cli.components", questions, str, START_TIMEOUT):
        if error:  # list the components of other packages nevertheless
            failed = True
            print(error, file=sys.stderr)
        else:
            print(text)
    sys.exit(1 if failed else 0)


_Listed: TypeAlias = tuple[str, str]
"""The description of a component, and the error if its module cannot be imported."""


def _describe(question: bytes) -> bytes:
    from conductor.errors import StartError

    name, is_detailed = decode_value(question, type=tuple[str, bool])
    try:
        listed: _Listed = "\n".join(_lines(name, is_detailed)), ""
    except StartError as exc:
        listed = "", f"{name}: {exc}"
    return msgspec.json.encode(listed)


def _lines(name: str, is_detailed: bool) -> Iterator[str]:
    from conductor.chainfile.model import ComponentSpec
    from conductor.plugins.loading import load_class
    from conductor.proxy.base import Agent

    cls = load_class(ComponentSpec(name=name, use=name))
    kind = "agent" if issubclass(cls, Agent) else "proxy"
    yield f"{name} ({kind}): {_first_line(cls.__doc__)}"
    yield from (f"    {option}" for option in _options(cls, is_detailed))


def _first_line(doc: str | None) -> str:
    return doc.strip().partition("\n")[0] if doc else ""


def _options(cls: type, is_detailed: bool) -> Iterator[str]:
    """The options of a class as `name: type` or `name: type = default`, then the fields of attrs
    classes among their types. Details are the descriptions, each below its option."""
    nested: dict[str, type] = {}
    yield from _fields(cls, nested, is_detailed)
    shown = 0
    while shown < len(nested):  # `_fields` adds to it
        name, nested_class = list(nested.items())[shown]
        shown += 1
        yield f"{name}:"
        yield from (f"    {field}" for field in _fields(nested_class, nested, is_detailed))


def _fields(cls: type, nested: dict[str, type], is_detailed: bool) -> Iterator[str]:
    """The fields of one class; adds the attrs classes among their types to `nested`, by name."""
    import attrs

    from conductor.chainfile.json_schema import attribute_docstrings, option_docstrings
    from conductor.chainfile.options import field_key

    if not attrs.has(cls):
        return
    texts = option_docstrings(cls) | attribute_docstrings(cls) if is_detailed else {}
    known = vars(sys.modules[cls.__module__])

    def expand(found: re.Match[str]) -> str:
        definition = known.get(found[0])
        if get_origin(definition) is Literal:
            return f"Literal{list(get_args(definition))!r}"
        if isinstance(definition, type) and attrs.has(definition):
            nested.setdefault(found[0], definition)
        return found[0]

    for field in attrs.fields(cls):
        if not field.init:
            continue
        kind = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", None)
        text = f"{field_key(field)}: {_NAME.sub(expand, str(kind or field.type))}"
        default = field.default
        if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
            takes_self = default.takes_self
            shown = "…" if takes_self else repr(default.factory())
            text += f" = {shown}"
        elif default is not attrs.NOTHING:
            text += f" = {_default_text(default)}"
        yield text
        description = texts.get(field.name) or texts.get(field_key(field), "")
        yield from textwrap.wrap(
            description, _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 4
        )


def _default_text(default: object) -> str:
    return f"{default.total_seconds():g}s" if isinstance(default, timedelta) else repr(default)


if __name__ == "__main__":
    from conductor.cli.plugin_process import answer_questions

    answer_questions(_describe)
