"""Mistakes in MCP methods are reported when the class is created, with what to write."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from conductor.proxy import (
    Agent,
    Context,
    DeclarationError,
    Proxy,
    ToolCall,
    prompt,
    resource,
    tool,
)
from conductor.proxy.mcp_methods import mcp_methods

if TYPE_CHECKING:
    from decimal import Decimal


def test_the_parameters_of_a_method_are_arguments_or_filled():
    class Fine(Proxy):
        @resource("notes://{name}{?lines}")
        async def note(self, name, context: Context, call: ToolCall, lines: int = 5) -> str:
            return ""

    [method] = mcp_methods(Fine)
    assert [(each.name, each.annotation) for each in method.arguments] == [
        ("name", Any),
        ("lines", int),
    ]
    assert method.injected == {"context": Context, "call": ToolCall}
    assert method.variables == ("name", "lines")
    assert method.location.startswith(__file__)


def test_a_method_is_async():
    with pytest.raises(DeclarationError, match=r"@tool: .*Wrong\.search must be `async def`$"):

        class Wrong(Proxy):
            @tool
            def search(self): ...

    with pytest.raises(
        DeclarationError, match=r"@prompt: .*\.search must be `async def`, not a staticmethod"
    ):

        class Static(Proxy):
            @prompt
            @staticmethod
            async def search(): ...


def test_a_resource_has_a_uri():
    with pytest.raises(DeclarationError, match=r'write @resource\("<uri>"\), for example'):

        class Bare(Proxy):
            @resource
            async def note(self): ...

    with pytest.raises(
        DeclarationError,
        match=r"Relative\.note: the resource '/index' is not a URI: begin with a scheme, such as "
        r'@resource\("note://index"\)',
    ):

        class Relative(Proxy):
            @resource("/index")
            async def note(self): ...


def test_the_variables_of_a_template_are_the_parameters():
    with pytest.raises(
        DeclarationError,
        match=r"Other\.note: the resource 'notes://\{name\}' has name, the method takes \(key\); "
        r"write `async def note\(self, name: str\)`",
    ):

        class Other(Proxy):
            @resource("notes://{name}")
            async def note(self, key: str): ...

    with pytest.raises(DeclarationError, match=r"has no variables, the method takes \(key\)"):

        class Fixed(Proxy):
            @resource("notes://index")
            async def note(self, key: str): ...

    with pytest.raises(
        DeclarationError, match=r'\'lines\' is in the query .* give it a default: `lines: str = ""`'
    ):

        class Query(Proxy):
            @resource("notes://{name}{?lines}")
            async def note(self, name: str, lines: str): ...


def test_a_template_is_valid():
    with pytest.raises(
        DeclarationError, match=r"Open\.note: .* is not a URI template: unbalanced braces"
    ):

        class Open(Proxy):
            @resource("notes://{name")
            async def note(self, name: str): ...


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

    with pytest.raises(DeclarationError, match=r"both the resource 'a://b'; give one another URI"):

        class SameUri(Proxy):
            @resource("a://b")
            async def one(self): ...

            @resource("a://b")
            async def two(self): ...

    class Different(Proxy):
        @tool
        async def search(self): ...

        @prompt(name="search")
        async def ask(self): ...

    assert [each.name for each in mcp_methods(Different)] == ["search", "search"]


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

    class Without(Base):
        search = None

    class Again(Base):
        @tool(name="find")
        async def search(self): ...

    assert mcp_methods(Without) == []
    assert [each.name for each in mcp_methods(Again)] == ["find"]


def test_only_a_proxy_has_mcp_methods():
    with pytest.raises(
        DeclarationError,
        match=r"Wrong\.search: only a Proxy can offer tools, resources",
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

    with pytest.raises(
        DeclarationError, match=r"without a session cannot be `async`; write `async def mcp_servers"
    ):

        class Waits(Proxy):
            async def mcp_servers(self):
                return []


def test_a_class_with_mcp_methods_does_not_import_the_sdk():
    """The import takes half a second; a chain without an agent that connects never needs it."""
    source = (
        "import sys\n"
        "from conductor.proxy import Context, Proxy, prompt, resource, tool\n"
        "class Notes(Proxy):\n"
        "    @tool\n"
        "    async def a(self, x: int, context: Context): ...\n"
        "    @resource('notes://{x}')\n"
        "    async def b(self, x: str): ...\n"
        "    @prompt\n"
        "    async def c(self): ...\n"
        "    def mcp_servers(self, session): ...\n"
        "print(sorted({'mcp', 'mcp_types', 'pydantic'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
