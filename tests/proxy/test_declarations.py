"""Mistakes in a plugin class are found when its module is imported, with a text that helps."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs
import pytest

from conductor.chainfile import ComponentSpec, structure_options
from conductor.proxy import (
    Agent,
    Proxy,
    on,
    on_mcp,
    on_prompt,
    on_session,
    on_tool_end,
    on_turn_end,
    slash,
)
from conductor.proxy.annotations import DeclarationError
from conductor.proxy.handlers import handlers_of
from conductor.proxy.middleware import location_of
from conductor.schema import v1, v2

HEAD = """
from __future__ import annotations
from typing import TYPE_CHECKING, Any
import attrs
from conductor.proxy import *
from conductor.schema import v1, v2
if TYPE_CHECKING:
    from nowhere import Unknown
"""


def imported(source: str) -> type[Proxy]:
    """The class `P` of an author's module."""
    module: dict[str, Any] = {"__name__": "author"}
    exec(compile(HEAD + source, "author.py", "exec", dont_inherit=True), module)
    plugin: type[Proxy] = module["P"]
    return plugin


def mistake_in(source: str) -> str:
    with pytest.raises(DeclarationError) as caught:
        imported(source)
    return str(caught.value)


FORWARD_LAST = (
    "P.handle: the message comes first, then `forward`: async def handle(self, message, forward)"
)
PARAMETERS = (
    "P.handle must take the message and, if it passes it on, `forward`: "
    "async def handle(self, message, forward)"
)
OWN = "which the conductor handles itself and never delivers"


@pytest.mark.parametrize(
    ("mark", "parameters", "problem"),
    [
        (
            'on("session/promt")',
            "self, params, forward",
            "P.handle handles 'session/promt', which is not an ACP method: did you mean "
            "'session/prompt'? (extension methods begin with an underscore, or name their source=)",
        ),
        (
            'on("session/prompt")',
            "self, request: v1.NewSessionRequest, forward",
            "P.handle handles 'session/prompt', but 'request' is annotated NewSessionRequest, "
            "which is the type of 'session/new'; use PromptRequest or `dict` (plain params) or "
            "`bytes` (raw JSON)",
        ),
        (
            'on("session/prompt")',
            "self, request: int, forward",
            "P.handle: 'request' is annotated int; use PromptRequest or `dict`",
        ),
        (
            'on("session/prompt")',
            "self, request: Unknown, forward",
            "the annotation of 'request' cannot be read: name 'Unknown' is not defined",
        ),
        ('on("session/prompt")', "self", PARAMETERS),
        ('on("session/prompt")', "self, message, forward, more", PARAMETERS),
        ('on("session/prompt")', "self, message, *, forward", PARAMETERS),
        ('on("session/prompt")', "self, message, forward=None", PARAMETERS),
        ('on("session/prompt")', "self, forward, request", FORWARD_LAST),
        (
            'on("session/update", source="client")',
            "self, params, forward",
            "only the agent sends it",
        ),
        ('on("proxy/successor")', "self, params, forward", OWN),
        ('on("$/cancel_request")', "self, params, forward", OWN),
        ('on("_x", source="editor")', "self, params", 'source is "client" or "agent"'),
        (
            'on("*")',
            "self, message: RawMessage, forward",
            "P.handle observes every message and takes nothing else: "
            "async def handle(self, message: RawMessage); to change messages, handle them by name",
        ),
        ("on_prompt", "self, prompt, session, forward", "(self, session, prompt, forward)"),
        (
            "on_prompt",
            "self, session, prompt: str, forward",
            "P.handle gets a `Prompt` as `prompt`, no `str`: write `prompt: Prompt` "
            "(`from conductor.proxy import Prompt`)",
        ),
        ("on_turn_end", "self, session, end: dict[str, Any]", "gets a `TurnEnd` as `end`"),
        (
            'on_update("tool_call", "plann")',
            "self, session, update, forward",
            "kind 'plann'; did you mean 'plan'",
        ),
        ("on_mcp()", "self, server, params, forward", 'write @on_mcp("<MCP method>")'),
        ('text_filter("agent")', "self, session", "must be `def`, without `async`"),
        ('text_filter("robot")', "self, session", '@text_filter: roles are "agent"'),
        ('slash("notes")', "self, session, arguments", "@slash('notes') has no description: write"),
        ("slash", "self, session, arguments", "@slash has no description: write @slash("),
        ('slash("", "Show")', "self, session, arguments", 'write @slash("<name>", "<description>"'),
        (
            "tool",
            "self, *words: str",
            "P.handle: the agent passes arguments by name, so a tool cannot take `*words: str`",
        ),
        ("tool", "self, _words: str", "the argument '_words' begins with an underscore"),
        ("tool", "", "P.handle takes no `self`"),
        (
            "tool",
            "self, amount: Unknown",
            "P.handle: an annotation cannot be read: name 'Unknown' is not defined; import or "
            "define the type above the class, outside of `if TYPE_CHECKING`",
        ),
    ],
)
def test_a_mistake_in_a_handler_is_explained(mark, parameters, problem):
    source = f"class P(Proxy):\n    @{mark}\n    async def handle({parameters}): ...\n"
    assert problem in mistake_in(source)


BASE = """
class Base(Proxy):
    @on("session/prompt")
    async def handle(self, params, forward): ...
    @tool
    async def search(self): ...
"""
SETTINGS = """
@attrs.define(slots=False)
class Settings:
    agent: str = "claude"
"""


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (
            'class P(Proxy):\n @on("session/prompt")\n def handle(self, params, forward): ...',
            "P.handle handles 'session/prompt' and must be `async def`",
        ),
        (
            'class P(Proxy):\n @on("session/prompt")\n async def handle(self, params, f):\n  yield',
            "must be `async def`, without `yield`",
        ),
        ("class P(Proxy):\n @tool\n def search(self): ...", "search must be `async def`"),
        (
            "class P(Proxy):\n @tool\n @staticmethod\n async def search(): ...",
            "search must be `async def`, not a staticmethod",
        ),
        ("on(len)", 'write @on("<wire method>")'),
        ('on("session/prompt")(5)', "put @on below"),
        (
            f"{BASE}class P(Base):\n async def handle(self, params, forward): ...",
            "P.handle replaces Base.handle, which handles 'session/prompt'",
        ),
        (
            f"{BASE}class P(Base):\n async def search(self): ...",
            "P.search replaces a tool; mark it with @tool too, or write `search = None`",
        ),
        (
            f'{BASE}class P(Base):\n @tool(name="search")\n async def find(self): ...',
            "P.search and P.find are both the tool 'search'; write @tool(name=",
        ),
        (
            "class P(Agent):\n @tool\n async def search(self): ...",
            "P.search: only a Proxy can offer tools",
        ),
        (
            "class P(Proxy):\n def mcp_servers(self, session, agent): ...",
            "P.mcp_servers takes (session, agent); write `def mcp_servers(self, session)`",
        ),
        ("class P(Proxy):\n mcp_servers = ()", "P.mcp_servers is not an option"),
        (
            "class P(Proxy):\n async def on_update(self, session, update, forward): ...",
            'P.on_update is never called: events are not found by name; write `@on_update("…")`',
        ),
        (
            "@attrs.define\nclass P(Proxy):\n kinds: list[str] = []",
            "P.kinds: a mutable default would be shared by all instances; write "
            "`= attrs.field(factory=list)`",
        ),
        (
            '@attrs.define\nclass P(Proxy):\n kinds: Any = attrs.field(default=["a"])',
            "write `= attrs.field(factory=lambda: ['a'])`",
        ),
        (
            "@attrs.define\nclass P(Proxy):\n notes: dict = per_session(dict)",
            "write `notes = per_session(…)`, without an annotation",
        ),
        (
            "class P(Proxy):\n notes = per_session([])",
            "write a function that makes the value of each session, such as `per_session(list)`",
        ),
        (
            "class P(Proxy):\n async def lifespan(self):\n  yield",
            "P.lifespan is an async context manager: write `@asynccontextmanager` above",
        ),
        ("class P(Proxy):\n async def lifespan(self): ...", "P.lifespan is an async context"),
        ('class P(Proxy):\n on_error = "ignore"', 'P.on_error must be "fail" or "pass"'),
        (
            "@attrs.define\nclass P(Proxy):\n required: bool = attrs.field(default=True)",
            "P.required is not an option: write `required = True`",
        ),
        ("class P(Proxy):\n def client(self): ...", "P.client would hide Plugin.client"),
        (
            "class P(Proxy):\n start_soon: str",
            "P.start_soon would hide Plugin.start_soon, which plugins use; rename it (an option "
            '`start_soon` can stay: `start_soon_: … = attrs.field(alias="start_soon")`)',
        ),
        (f"{SETTINGS}class P(Settings, Proxy): ...", "Settings.agent would hide Proxy.agent"),
        (
            "class P(Proxy):\n versions = {3}",
            "P.versions is the set of the protocol versions that the proxy is for: "
            "write `versions = {1}`, without an annotation",
        ),
        ("class P(Proxy):\n versions = ()", "P.versions is the set"),
        ("class P(Proxy):\n versions = (True,)", "P.versions is the set"),
        ("class P(Proxy):\n versions: str = '1'", "without an annotation"),
        ("class P(Agent):\n versions = (1,)", "is for proxies"),
    ],
)
def test_a_mistake_in_a_class_is_explained(source, problem):
    assert problem in mistake_in(source)


@pytest.mark.parametrize(
    ("method", "annotation", "result"),
    [
        ("session/prompt", v1.PromptRequest, v1.PromptResponse),
        ("session/prompt", v2.PromptRequest, v2.PromptResponse),
        ("session/update", v1.SessionNotification, dict),
        ("elicitation/create", v1.CreateElicitationRequest, v1.CreateElicitationResponse),
        ("session/prompt", dict[str, Any], dict),
        ("session/prompt", Any, dict),
        ("session/prompt", bytes, bytes),
        ("_vendor/x", dict, dict),
    ],
)
def test_annotations_that_fit(method, annotation, result):
    async def handle(self, message, forward): ...

    handle.__annotations__["message"] = annotation
    plugin = type("P", (Proxy,), {"handle": on(method)(handle)})

    handler, _ = plugin._acp_handlers
    assert handler.result == result
    assert handler.annotation in (annotation, dict)


def test_what_cannot_be_wrong_is_accepted():
    plugin = imported(
        """
class P(Proxy):
    @on("session/prompt")
    async def typed(self, request: v1.PromptRequest, forward: Unknown) -> Unknown: ...
    @on("session/prompt")
    async def plain(self, request, forward) -> v1.PromptResponse | v2.PromptResponse: ...
    @on("session/new")
    async def new(self, request, forward) -> dict[str, Any]: ...
    @on("_vendor/method")
    async def extension(self, params, forward) -> str: ...
    @on_update("_plann", "vendor_status")
    async def kinds_of_extensions(self, session, update, forward): ...
"""
    )
    assert {each.method for each in plugin._acp_handlers} >= {"session/new", "_vendor/method"}


def test_a_handler_or_tool_that_is_replaced_by_none_is_gone():
    assert imported(f"{BASE}class P(Base):\n handle = search = None")._acp_handlers == ()


def test_a_message_of_one_sender_has_one_handler():
    class P(Proxy):
        @on("mcp/message")
        async def both(self, params, forward): ...

        @on_mcp("tools/call")
        async def of_the_agent(self, server, params, forward): ...

        @on("_x", source="client")
        async def one(self, params, forward): ...

        @on("_x", source="agent")
        async def two(self, params, forward): ...

    handled = [(each.method, sender) for each in P._acp_handlers for sender in each.senders]
    both = {(method, sender) for method in ("mcp/message", "_x") for sender in ("client", "agent")}
    assert both < set(handled)
    assert len(handled) == len(set(handled))


def test_one_function_may_handle_several_methods():
    class P(Proxy):
        @on("session/new")
        @on("session/load")
        async def opened(self, params, forward): ...

        @on("session/close", "session/delete")
        async def ended(self, params, forward): ...

    methods = {handler.method for handler in P._acp_handlers}
    opened, ended = {"session/new", "session/load"}, {"session/close", "session/delete"}
    assert methods == {*opened, *ended, "initialize"}


def test_names_of_the_api_may_be_options_by_an_alias_and_fields_of_an_agent():
    @attrs.define
    class Named(Proxy):
        table: ClassVar[dict[str, int]] = {}
        agent_: str = attrs.field(alias="agent")

    @attrs.define
    class Wrapper(Agent):
        agent: str

    spec = ComponentSpec(name="named", use="named", options={"agent": "claude"})
    assert structure_options(spec, Named).agent_ == Wrapper("claude").agent == "claude"


def test_an_option_of_a_class_without_attrs_is_explained_where_it_is_missed():
    class Greets(Proxy):
        greeting: str

    @attrs.define
    class Louder(Greets):
        volume: int = 1

    for cls in (Greets, Louder):
        with pytest.raises(AttributeError, match=r"write `@attrs.define` above `class Greets`"):
            _ = cls().greeting
        with pytest.raises(AttributeError, match=f"'{cls.__name__}' object has no attribute 'x'$"):
            _ = cls().x


def test_the_place_of_a_handler_is_that_of_the_authors_function_also_of_one_that_observes():
    class P(Proxy):
        @slash("say", "Say something")
        async def say(self, session, arguments): ...

        @on_prompt
        async def ask(self, session, prompt, forward): ...

        @on_session
        async def opened(self, session): ...

        @on_tool_end
        async def ended(self, session, call): ...

    places = {each.method: each.location for each in handlers_of(P)}
    assert places["session/prompt"] == location_of(P.ask)
    assert places["session/new"] == places["session/load"] == location_of(P.opened)
    assert places["session/update"] == location_of(P.ended)

    class Q(Proxy):
        @slash("say", "Say something")
        async def say(self, session, arguments): ...

        @on_turn_end
        async def ended(self, session, end): ...

    places = {each.method: each.location for each in handlers_of(Q)}
    assert places["session/prompt"] == location_of(Q.say)
    assert places["session/update"] == location_of(Q.ended)
