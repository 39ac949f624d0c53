"""Options of a proxy: structured by its own types, and every mistake at its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NewType

import attrs
import pytest

from conductor.chainfile import ChainFile, ComponentSpec, structure_options
from conductor.errors import ChainFileError

if TYPE_CHECKING:
    from somewhere import Peer


class Kind(Enum):
    READ = "read"
    SEARCH = "search"


class Level(StrEnum):
    LOW = "low"
    HIGH = "high"


UserId = NewType("UserId", int)


@attrs.frozen
class Server:
    host: str
    port: int = 1


@dataclass
class Strange:
    x: int


@attrs.define
class Options:
    files: tuple[str, ...]
    text: str = ""
    count: int = 0
    share: float = 0.0
    flag: bool = False
    maybe: int | None = 1
    kind: Kind = Kind.READ
    level: Level = Level.LOW
    choice: Literal["a", 1, True] = "a"
    server: Server | None = None
    servers: list[Server] = attrs.field(factory=list)
    path: Path = Path()
    wait: timedelta = timedelta(0)
    user: UserId = UserId(0)
    either: int | list[str] | str = 0
    ages: Mapping[str, int] = attrs.field(factory=dict)
    names: frozenset[str] = frozenset()
    pair: tuple[int, str] = (0, "")
    raw: Any = None
    strange: Strange | None = None
    from_: str = ""
    renamed: int = attrs.field(default=0, alias="other")
    more: int = attrs.field(default=1, converter=lambda value: value + 1)
    peer: Peer = attrs.field(init=False, repr=False, eq=False)


@attrs.define
class Checked:
    token: str = attrs.field(default="A")
    few: int = attrs.field(default=1, validator=attrs.validators.lt(10))
    low: int = 0
    high: int = attrs.field(default=9)

    @token.validator
    def _is_upper_case(self, attribute: Any, value: str) -> None:
        if not value.isupper():
            raise ValueError(f"{value!r} ({value.title()}) is not upper case")

    @high.validator
    def _is_higher(self, attribute: Any, value: int) -> None:
        if value < self.low:
            raise ValueError("`high` is lower than `low`")

    def __attrs_post_init__(self) -> None:
        if self.low == 7:
            raise ValueError("7 is out of order")


def _mistakes(component: ComponentSpec, cls: type) -> str:
    with pytest.raises(ChainFileError) as caught:
        structure_options(component, cls)
    return "\n" + str(caught.value) + "\n"


def test_options_are_read_by_the_types_of_their_fields(
    chain: Callable[..., ChainFile], tmp_path: Path
) -> None:
    component = chain("""\
        version: 1
        proxies:
        - use: x
          with:
            files: [a, no]
            text: no
            count: 0x10
            share: 1e3
            flag: yes
            maybe: ~
            kind: search
            level: high
            choice: true
            server: {host: h, port: "3"}
            servers: [{host: i}]
            path: ../x.txt
            wait: 2m
            user: 7
            either: [a]
            ages: {a: 1}
            names: [a, a]
            pair: [1, x]
            raw: {x: [1, ~]}
            from: there
            other: 5
            more: 4
        """).proxies[0]
    assert structure_options(component, Options) == Options(
        files=("a", "no"),
        text="no",
        count=16,
        share=1000.0,
        flag=True,
        maybe=None,
        kind=Kind.SEARCH,
        level=Level.HIGH,
        choice=True,
        server=Server("h", 3),
        servers=[Server("i")],
        path=tmp_path.parent / "x.txt",
        wait=timedelta(minutes=2),
        user=UserId(7),
        either=["a"],
        ages={"a": 1},
        names=frozenset({"a"}),
        pair=(1, "x"),
        raw={"x": ["1", None]},
        from_="there",
        other=5,
        more=4,
    )


def test_all_mistakes_come_at_once_each_at_its_place(chain: Callable[..., ChainFile]) -> None:
    component = chain("""\
        version: 1
        proxies:
        - use: x
          with:
            filse: [a]
            text: [x]
            count: 012
            flag: maybe
            maybe: x
            kind: serch
            choice: 2
            server: {prt: 3}
            servers: [{host: i}, {host: ~}]
            wait: 10
            either: {a: b}
            ages: {a: x}
            names: a b
            pair: [1]
            strange: {x: 1}
        """).proxies[0]
    assert (
        _mistakes(component, Options)
        == """
chain.yaml:3:8: error: the option `files` is missing
   | - use: x
   |        ^
chain.yaml:5:5: error: unknown option `filse`
   |     filse: [a]
   |     ^^^^^
help: did you mean `files`?
chain.yaml:6:11: error: text: expected text, found a list
   |     text: [x]
   |           ^^^
chain.yaml:7:12: error: count: expected a whole number, found `012`
   |     count: 012
   |            ^^^
chain.yaml:8:11: error: flag: expected `true` or `false`, found `maybe`
   |     flag: maybe
   |           ^^^^^
chain.yaml:9:12: error: maybe: expected a whole number, found `x`
   |     maybe: x
   |            ^
chain.yaml:10:11: error: kind: expected `read` or `search`, found `serch`
   |     kind: serch
   |           ^^^^^
help: did you mean `search`?
chain.yaml:11:13: error: choice: expected one of `a`, `1`, `true`, found `2`
   |     choice: 2
   |             ^
chain.yaml:12:13: error: server: the option `host` is missing
   |     server: {prt: 3}
   |             ^^^^^^^^
chain.yaml:12:14: error: unknown option `prt`
   |     server: {prt: 3}
   |              ^^^
help: did you mean `port`?
chain.yaml:13:33: error: servers[1].host: expected text, found nothing
   |     servers: [{host: i}, {host: ~}]
   |                                 ^
help: if the word itself is meant, write it in quotes: `"null"`
chain.yaml:14:11: error: wait: expected a duration such as `500ms`, `10s` or `2m`, found `10`
   |     wait: 10
   |           ^^
chain.yaml:15:13: error: either: expected a whole number or a list or text, found a mapping
   |     either: {a: b}
   |             ^^^^^^
chain.yaml:16:15: error: ages.a: expected a whole number, found `x`
   |     ages: {a: x}
   |               ^
chain.yaml:17:12: error: names: expected a list, found `a b`
   |     names: a b
   |            ^^^
help: write a list: `[a, b]`
chain.yaml:18:11: error: pair: expected 2 items, found 1
   |     pair: [1]
   |           ^^^
chain.yaml:19:14: error: strange: a value of type Strange cannot be given here
   |     strange: {x: 1}
   |              ^^^^^^
"""
    )


def test_errors_of_validators_are_shown_at_their_option(
    chain: Callable[..., ChainFile],
) -> None:
    component = chain(
        """\
        version: 1
        proxies:
        - use: x
          with:
            token: "${TOKEN} x"
            few: 40
            low: 12
            high: 3
            other: 1
        """,
        environ={"TOKEN": "s3cr3t"},
    ).proxies[0]
    assert (
        _mistakes(component, Checked)
        == """
chain.yaml:5:12: error: token: '${TOKEN} x' (${TOKEN} x) is not upper case
   |     token: "${TOKEN} x"
   |            ^^^^^^^^^^^^
chain.yaml:6:10: error: few: 'few' must be < 10: 40
   |     few: 40
   |          ^^
chain.yaml:8:11: error: high: `high` is lower than `low`
   |     high: 3
   |           ^
chain.yaml:9:5: error: unknown option `other`
   |     other: 1
   |     ^^^^^
help: the options are `token`, `few`, `low`, `high`
"""
    )


def test_arguments_beside_a_command_belong_into_it(chain: Callable[..., ChainFile]) -> None:
    @attrs.define
    class McpServer:
        command: list[str]
        name: str = ""

    text = "version: 1\nproxies: [{use: x, with: {command: [npx], args: [-y]}}]\n"
    found = _mistakes(chain(text).proxies[0], McpServer)

    assert "error: unknown option `args`" in found
    assert "help: write the arguments into `command`: `[PROGRAM, ARGUMENT, …]`" in found


def test_an_error_about_all_options_is_shown_at_the_class(
    chain: Callable[..., ChainFile],
) -> None:
    component = chain("version: 1\nproxies: [{use: x, with: {low: 7}}]\n").proxies[0]
    assert (
        _mistakes(component, Checked)
        == """
chain.yaml:2:17: error: 7 is out of order
   | proxies: [{use: x, with: {low: 7}}]
   |                 ^
"""
    )


def test_mistakes_of_the_command_line_name_the_component() -> None:
    component = ComponentSpec(name="notes", use="x", options={"count": "many", "zzz": "1"})
    assert (
        _mistakes(component, Options)
        == """
<command line>: error: notes: count: expected a whole number, found `many`
<command line>: error: notes: unknown option `zzz`
help: the options are `files`, `text`, `count`, `share`, `flag`, `maybe`, `kind`, `level`, …
<command line>: error: notes: the option `files` is missing
"""
    )


def test_a_program_may_give_python_values() -> None:
    component = ComponentSpec(
        "x", use="x", options={"files": ("a",), "count": 3, "flag": True, "path": Path("/a")}
    )
    assert structure_options(component, Options) == Options(
        files=("a",), count=3, flag=True, path=Path("/a")
    )


def test_an_annotation_that_cannot_be_resolved_is_the_authors_mistake() -> None:
    @attrs.define
    class Unresolved:
        peer: Peer

    with pytest.raises(TypeError, match=r"Unresolved\.peer: the annotation 'Peer' cannot"):
        structure_options(ComponentSpec("x", use="x"), Unresolved)


def test_a_path_may_begin_in_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    component = ComponentSpec("c", options={"files": [], "path": "~/audit.log"}, directory="/etc")

    assert structure_options(component, Options).path == Path("/home/me/audit.log")


def test_a_home_directory_that_is_unknown_is_a_mistake() -> None:
    component = ComponentSpec("c", options={"files": [], "path": "~nobody-of-this-name/x"})

    assert "path: the home directory at the beginning of this path is unknown" in _mistakes(
        component, Options
    )
