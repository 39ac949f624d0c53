"""Mistakes in a plugin class are found when its module is imported, with a text that helps."""

from __future__ import annotations

import typing
from typing import Any, ClassVar

import attrs
import pytest

from conductor.chainfile import ComponentSpec, structure_options
from conductor.proxy import (
    Agent,
    Forward,
    Proxy,
    RawMessage,
    on,
    on_mcp,
    on_prompt,
    on_session,
    on_tool_end,
    on_turn_end,
    per_session,
    slash,
)
from conductor.proxy.annotations import DeclarationError
from conductor.proxy.handlers import handlers_of
from conductor.proxy.middleware import location_of
from conductor.schema import v1, v2

if typing.TYPE_CHECKING:
    from nowhere import Unknown


def mistake_in(define):
    with pytest.raises(DeclarationError) as caught:
        define()
    return str(caught.value)


def test_an_unknown_method_has_a_suggestion():
    def define():
        class P(Proxy):
            @on("session/promt")
            async def handle(self, params, forward): ...

    assert mistake_in(define) == (
        "P.handle handles 'session/promt', which is not an ACP method: did you mean "
        "'session/prompt'? (extension methods begin with an underscore, or name their source=)"
    )


def test_the_type_of_another_method_is_refused_by_name():
    def define():
        class P(Proxy):
            @on("session/prompt")
            async def handle(self, request: v1.NewSessionRequest, forward): ...

    assert mistake_in(define) == (
        "P.handle handles 'session/prompt', but 'request' is annotated NewSessionRequest, which is "
        "the type of 'session/new'; use PromptRequest or `dict` (plain params) or `bytes` (raw "
        "JSON)"
    )


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        (int, "P.handle: 'request' is annotated int; use PromptRequest or `dict`"),
        (v1.PromptResponse, "P.handle: 'request' is annotated PromptResponse; use"),
        ("Unknown", "the annotation of 'request' cannot be read: name 'Unknown' is not defined"),
    ],
)
def test_an_annotation_that_is_no_message_of_the_method(annotation, problem):
    def define():
        async def handle(self, request, forward): ...

        handle.__annotations__["request"] = annotation
        type("P", (Proxy,), {"handle": on("session/prompt")(handle)})

    assert problem in mistake_in(define)


@pytest.mark.parametrize(
    ("method", "annotation", "result"),
    [
        ("session/prompt", v1.PromptRequest, v1.PromptResponse),
        ("session/prompt", v2.PromptRequest, v2.PromptResponse),
        ("session/update", v1.SessionNotification, dict),
        ("elicitation/create", v1.CreateElicitationRequest, v1.CreateElicitationResponse),
        ("session/prompt", dict, dict),
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


def test_another_annotation_that_cannot_be_read_does_no_harm():
    class P(Proxy):
        @on("session/prompt")
        async def handle(self, request: v1.PromptRequest, forward: Unknown): ...

    assert P._acp_handlers[0].annotation is v1.PromptRequest


async def test_several_handlers_of_one_method_run_in_method_resolution_order(chain):
    seen = []

    class Base(Proxy):
        @on("session/prompt")
        async def last(self, params, forward):
            seen.append(("last", params["prompt"][0]["text"]))
            return await forward()

    class P(Base):
        @on("session/prompt")
        async def first(self, params, forward):
            params["prompt"][0]["text"] += " changed"
            result = await forward(params)
            return {**result, "_meta": {"seen": True}}

        @on("session/prompt")
        async def second(self, request: v1.PromptRequest, forward):
            seen.append(("second", request.prompt[0].text))
            return await forward()

    async with chain(P()) as client:
        await client.initialize()
        session = await client.new_session("/work")
        answer = await client.prompt(session, "hi")

    assert seen == [("second", "hi changed"), ("last", "hi changed")]
    assert answer == {"stopReason": "end_turn", "_meta": {"seen": True}}


def test_one_handler_per_sender_of_an_extension_is_fine():
    class P(Proxy):
        @on("_x", source="client")
        async def one(self, params, forward): ...

        @on("_x", source="agent")
        async def two(self, params, forward): ...

    senders = [handler.senders for handler in P._acp_handlers if handler.method == "_x"]
    assert senders == [("client",), ("agent",)]


def test_a_message_of_one_sender_has_one_handler():
    class P(Proxy):
        @on("mcp/message")
        async def both(self, params, forward):
            return await forward()

        @on_mcp("tools/call")
        async def of_the_agent(self, server, params, forward):
            return await forward()

    handled = [(each.method, sender) for each in P._acp_handlers for sender in each.senders]
    assert {("mcp/message", "client"), ("mcp/message", "agent")} < set(handled)
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


def test_a_handler_must_be_async():
    def define():
        class P(Proxy):
            @on("session/prompt")
            def handle(self, params, forward): ...

    assert mistake_in(define) == "P.handle handles 'session/prompt' and must be `async def`"


def test_a_handler_must_not_be_a_generator():
    def define():
        class P(Proxy):
            @on("session/prompt")
            async def handle(self, params, forward):
                yield

    assert mistake_in(define).endswith("must be `async def`, without `yield`")


async def _none(self): ...
async def _three(self, message, forward, more): ...
async def _keyword(self, message, *, forward): ...
async def _star(self, *messages): ...
async def _optional(self, message, forward=None): ...


@pytest.mark.parametrize("function", [_none, _three, _keyword, _star, _optional])
def test_wrong_parameters(function):
    def define():
        async def copy(self): ...

        copy.__code__, copy.__kwdefaults__ = function.__code__, function.__kwdefaults__
        copy.__defaults__ = function.__defaults__
        type("P", (Proxy,), {"handle": on("session/prompt")(copy)})

    assert mistake_in(define) == (
        "P.handle must take the message and, if it passes it on, `forward`: "
        "async def handle(self, message, forward)"
    )


@pytest.mark.parametrize("default", [[], {}, set(), ["read"]])
def test_a_mutable_default_option(default):
    def define():
        attrs.define(type("P", (Proxy,), {"kinds": default, "__annotations__": {"kinds": "list"}}))

    text = mistake_in(define)
    assert text.startswith("P.kinds: a mutable default would be shared by all instances; write")
    assert "attrs.field(factory=" in text


def test_a_mutable_default_inside_of_a_field():
    def define():
        @attrs.define
        class P(Proxy):
            kinds: list[str] = attrs.field(default=[])

    assert mistake_in(define).endswith("write `= attrs.field(factory=list)`")


def test_a_mutable_class_variable_is_allowed():
    @attrs.define
    class P(Proxy):
        table: ClassVar[dict[str, int]] = {}

    assert P().table is P.table


def test_per_session_must_not_be_annotated():
    def define():
        @attrs.define
        class P(Proxy):
            notes: dict = per_session(dict)  # noqa: RUF009

    assert "write `notes = per_session(…)`, without an annotation" in mistake_in(define)


def test_a_source_that_never_sends_the_method():
    def define():
        class P(Proxy):
            @on("session/update", source="client")
            async def handle(self, params, forward): ...

    assert "only the agent sends it" in mistake_in(define)


@pytest.mark.parametrize("method", ["proxy/successor", "proxy/initialize", "$/cancel_request"])
def test_the_conductors_own_messages_cannot_be_handled(method):
    def define():
        async def handle(self, params, forward): ...

        type("P", (Proxy,), {"handle": on(method)(handle)})

    assert "the conductor handles itself" in mistake_in(define)


def test_on_needs_the_method():
    assert mistake_in(lambda: on(len)).startswith('write @on("<wire method>")')
    assert "put @on below" in mistake_in(lambda: on("session/prompt")(5))
    assert 'source is "client" or "agent"' in mistake_in(lambda: on("_x", source="editor"))


def test_a_replaced_handler_must_say_so():
    class Base(Proxy):
        @on("session/prompt")
        async def handle(self, params, forward): ...

    def define():
        class P(Base):
            async def handle(self, params, forward): ...

    assert "P.handle replaces Base.handle, which handles 'session/prompt'" in mistake_in(define)

    class Without(Base):
        handle = None

    assert Without._acp_handlers == ()


def test_an_observer_takes_nothing_but_the_message():
    def define():
        class P(Proxy):
            @on("*")
            async def see(self, message: RawMessage, forward): ...

    assert mistake_in(define) == (
        "P.see observes every message and takes nothing else: "
        "async def see(self, message: RawMessage); to change messages, handle them by name"
    )


def test_on_error_has_two_values():
    def define():
        class P(Proxy):
            on_error = "ignore"

    assert mistake_in(define) == 'P.on_error must be "fail" or "pass"'


# -- order of parameters, return type --------------------------------------------------------------


def test_forward_before_the_message_is_refused():
    def by_name():
        class P(Proxy):
            @on("session/prompt")
            async def handle(self, forward, request): ...

    def by_type():
        class P(Proxy):
            @on("session/prompt")
            async def handle(self, pass_on, request: v1.PromptRequest): ...

    def by_type_of_forward():
        class P(Proxy):
            @on("session/prompt")
            async def handle(self, pass_on: Forward[Any, Any], request): ...

    expected = (
        "P.handle: the message comes first, then `forward`: "
        "async def handle(self, message, forward)"
    )
    assert mistake_in(by_name) == expected
    assert mistake_in(by_type) == expected
    assert mistake_in(by_type_of_forward) == expected


@pytest.mark.parametrize(
    ("message", "forward", "fitting"),
    [
        (
            v1.PromptRequest,
            Forward[v1.NewSessionRequest, v1.PromptResponse],
            "gets PromptRequest; annotate 'forward' as Forward[PromptRequest, PromptResponse]",
        ),
        (
            v1.PromptRequest,
            Forward[v1.PromptRequest, v2.PromptResponse],
            "gets PromptRequest; annotate 'forward' as Forward[PromptRequest, PromptResponse]",
        ),
        (
            dict,
            Forward[v1.PromptRequest, v1.PromptResponse],
            "gets dict[str, Any]; annotate 'forward' as Forward[dict[str, Any], dict[str, Any]]",
        ),
    ],
)
def test_forward_of_another_message_or_result_is_refused(message, forward, fitting):
    def define():
        async def handle(self, request, forward): ...

        handle.__annotations__ = {"request": message, "forward": forward}
        type("P", (Proxy,), {"handle": on("session/prompt")(handle)})

    assert mistake_in(define) == f"P.handle handles 'session/prompt' and {fitting}"


def test_forward_of_a_notification_has_no_result():
    def define():
        class P(Proxy):
            @on("session/update")
            async def handle(
                self,
                update: v1.SessionNotification,
                forward: Forward[v1.SessionNotification, v1.PromptResponse],
            ): ...

    assert mistake_in(define).endswith("annotate 'forward' as Forward[SessionNotification, None]")


def test_a_return_type_of_another_method_is_refused():
    def define():
        class P(Proxy):
            @on("session/prompt")
            async def handle(self, request, forward) -> v1.NewSessionResponse: ...

    assert mistake_in(define) == (
        "P.handle handles 'session/prompt' and is annotated to return NewSessionResponse; "
        "write `-> PromptResponse or dict`"
    )


def test_a_text_is_no_result_and_a_notification_has_none():
    def text():
        class P(Proxy):
            @on("session/prompt")
            async def handle(self, request, forward) -> str: ...

    def notification():
        class P(Proxy):
            @on("session/update")
            async def handle(self, update, forward) -> v1.PromptResponse: ...

    assert "annotated to return str; write `-> PromptResponse or dict`" in mistake_in(text)
    assert "annotated to return PromptResponse; write `-> None`" in mistake_in(notification)


def test_return_types_that_fit_are_accepted():
    class P(Proxy):
        @on("session/prompt")
        async def prompt(self, request, forward) -> v1.PromptResponse | v2.PromptResponse: ...

        @on("session/new")
        async def new(self, request, forward) -> dict[str, Any]: ...

        @on("session/update")
        async def update(self, update, forward) -> None: ...

        @on("session/load")
        async def only_for_type_checkers(self, request, forward) -> Unknown: ...

        @on("_vendor/method")
        async def extension(self, params, forward) -> str: ...


# -- names of the API ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["client", "agent", "start_soon", "release_lane", "answering"])
def test_a_field_may_not_shadow_a_name_of_the_plugin_api(name):
    with pytest.raises(DeclarationError) as caught:
        attrs.define(type("Hiding", (Proxy,), {"__annotations__": {name: str}}))

    assert f"Hiding.{name} would hide P" in str(caught.value)
    assert f'`{name}_: … = attrs.field(alias="{name}")`' in str(caught.value)


def test_a_method_or_base_class_may_not_shadow_a_name_of_the_plugin_api():
    with pytest.raises(DeclarationError):

        class Method(Proxy):
            def client(self): ...

    @attrs.define(slots=False)
    class Base:
        agent: str = "claude"

    with pytest.raises(DeclarationError) as caught:

        class Mixed(Base, Proxy): ...

    assert "Base.agent would hide Proxy.agent" in str(caught.value)


def test_an_option_may_have_such_a_name_in_the_chain_file():
    @attrs.define
    class Named(Proxy):
        agent_: str = attrs.field(alias="agent")

    spec = ComponentSpec(name="named", use="named", options={"agent": "claude"})
    assert structure_options(spec, Named).agent_ == "claude"


def test_an_agent_class_may_have_a_field_called_agent():
    @attrs.define
    class Wrapper(Agent):
        agent: str

    assert Wrapper("x").agent == "x"


def test_required_is_no_option():
    with pytest.raises(DeclarationError) as caught:

        @attrs.define
        class Wrong(Proxy):
            required: bool = True

    assert "Wrong.required is not an option: write `required = True`" in str(caught.value)


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
