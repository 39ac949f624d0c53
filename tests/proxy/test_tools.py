"""Mistakes in tools are reported when the class is created, with what to write."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from conductor.proxy import Agent, Proxy, tool
from conductor.proxy.annotations import DeclarationError

if TYPE_CHECKING:
    from decimal import Decimal


def test_a_method_is_async():
    with pytest.raises(DeclarationError, match=r"@tool: .*Wrong\.search must be `async def`$"):

        class Wrong(Proxy):
            @tool
            def search(self): ...

    with pytest.raises(
        DeclarationError, match=r"@tool: .*\.search must be `async def`, not a staticmethod"
    ):

        class Static(Proxy):
            @tool
            @staticmethod
            async def search(): ...


def test_the_agent_passes_arguments_by_name():
    with pytest.raises(
        DeclarationError, match=r"Many\.search: .* a tool cannot take `\*words: str`; write one"
    ):

        class Many(Proxy):
            @tool
            async def search(self, *words: str): ...

    with pytest.raises(
        DeclarationError, match=r"Hidden\.search: the argument '_words' .*; rename it to 'words'"
    ):

        class Hidden(Proxy):
            @tool
            async def search(self, _words: str): ...

    with pytest.raises(DeclarationError, match=r"NoSelf\.search takes no `self`"):

        class NoSelf(Proxy):
            @tool
            async def search(): ...


def test_an_annotation_that_only_type_checkers_see_is_refused():
    with pytest.raises(
        DeclarationError,
        match=r"Unseen\.pay: an annotation cannot be read: name 'Decimal' is not defined; import "
        r"or define the type above the class, outside of `if TYPE_CHECKING`",
    ):

        class Unseen(Proxy):
            @tool
            async def pay(self, amount: Decimal): ...


def test_two_methods_have_different_names():
    with pytest.raises(
        DeclarationError,
        match=r"Twice\.find and Twice\.search are both the tool 'search'; write @tool\(name=",
    ):

        class Twice(Proxy):
            @tool(name="search")
            async def find(self): ...

            @tool
            async def search(self): ...


def test_a_replaced_method_is_marked_again():
    class Base(Proxy):
        @tool
        async def search(self): ...

    with pytest.raises(
        DeclarationError,
        match=r"Child\.search replaces a tool; mark it with @tool too, or write `search = None`",
    ):

        class Child(Base):
            async def search(self): ...


def test_only_a_proxy_has_tools():
    with pytest.raises(
        DeclarationError,
        match=r"Wrong\.search: only a Proxy can offer tools",
    ):

        class Wrong(Agent):
            @tool
            async def search(self): ...


def test_mcp_servers_takes_the_session():
    with pytest.raises(
        DeclarationError,
        match=r"Two\.mcp_servers takes \(session, agent\); write `def mcp_servers\(self, sess",
    ):

        class Two(Proxy):
            def mcp_servers(self, session, agent):
                return []

    with pytest.raises(DeclarationError, match=r"Option\.mcp_servers is not an option"):

        class Option(Proxy):
            mcp_servers = ()

    with pytest.raises(DeclarationError, match=r"TakesNone\.mcp_servers takes \(\); write `def"):

        class TakesNone(Proxy):
            def mcp_servers(self):
                return []


def test_a_class_with_tools_does_not_import_the_sdk():
    """The import takes half a second; a chain without an agent that connects never needs it."""
    source = (
        "import sys\n"
        "from conductor.proxy import Context, Proxy, tool\n"
        "class Notes(Proxy):\n"
        "    @tool\n"
        "    async def a(self, x: int, context: Context): ...\n"
        "    def mcp_servers(self, session): ...\n"
        "print(sorted({'mcp', 'mcp_types', 'pydantic'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
