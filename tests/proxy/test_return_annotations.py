"""Return annotations that a handler cannot keep are errors when the class is created."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import pytest

from conductor.proxy import (
    Proxy,
    on,
    on_cancel,
    on_mcp,
    on_permission,
    on_prompt,
    on_question,
    on_session,
    on_session_end,
    on_session_setup,
    on_text,
    on_tool_end,
    on_tool_start,
    on_turn_end,
    on_update,
    slash,
    text_filter,
)
from conductor.proxy.annotations import DeclarationError
from conductor.schema import v1, v2

ANSWERS = [
    (on_session_setup, "setup, forward"),
    (on_prompt, "session, prompt, forward"),
    (on_permission, "session, asked, forward"),
    (on_question, "session, question, forward"),
    (on_mcp("tools/call"), "server, params, forward"),
]
TEXTS = [(on_text, "session, text"), (slash("note", "A note"), "session, arguments")]
OBSERVERS = [
    (on_session, "session"),
    (on_session_end, "session"),
    (on_update("plan"), "session, update, forward"),
    (on_tool_start, "session, call"),
    (on_tool_end, "session, call"),
    (on_cancel, "session"),
    (on_turn_end, "session, end"),
]


def define(mark, parameters, returns):
    """A handler that is annotated to return this."""
    names = {"mark": mark, "Any": Any, "Mapping": Mapping, "NoReturn": NoReturn, "v1": v1, "v2": v2}
    source = f"@mark\nasync def handle(self, {parameters}) -> {returns}: ..."
    exec(compile(source, "notes.py", "exec", dont_inherit=True), names)
    return type("P", (Proxy,), {"handle": names["handle"]})


def mistake_in(mark, parameters, returns):
    with pytest.raises(DeclarationError) as caught:
        define(mark, parameters, returns)
    return str(caught.value)


@pytest.mark.parametrize(("mark", "parameters"), ANSWERS)
def test_the_answer_of_an_event_is_an_object(mark, parameters):
    for returns, shown in [("str", "str"), ("int | None", "int"), ("list[Any]", "list")]:
        assert mistake_in(mark, parameters, returns).endswith(
            f"returns an answer and is annotated to return {shown}; write `-> dict[str, Any]`"
        )
    assert "annotated to return None; write `-> dict" in mistake_in(mark, parameters, "None")
    for returns in ("Any", "dict[str, Any]", "Mapping[str, Any] | None", "NoReturn", "'Unknown'"):
        define(mark, parameters, returns)


@pytest.mark.parametrize("mark_and_parameters", TEXTS)
def test_the_text_of_an_event_is_a_str(mark_and_parameters):
    for returns in ("int", "bytes | None", "dict[str, Any]"):
        assert mistake_in(*mark_and_parameters, returns).endswith("; write `-> str | None`")
    for returns in ("Any", "str", "str | None", "None"):
        define(*mark_and_parameters, returns)


@pytest.mark.parametrize(("mark", "parameters"), OBSERVERS)
def test_the_result_of_an_event_without_an_answer_would_be_ignored(mark, parameters):
    for returns, shown in [("dict[str, Any]", "dict"), ("bool", "bool"), ("str | None", "str")]:
        assert mistake_in(mark, parameters, returns).endswith(
            f"handle returns nothing and is annotated to return {shown}; write `-> None`"
        )
    for returns in ("Any", "None", "NoReturn"):
        define(mark, parameters, returns)


def test_the_error_names_the_decorator_and_the_method():
    with pytest.raises(DeclarationError) as caught:

        class Notes(Proxy):
            @on_prompt
            async def add(self, session, prompt, forward) -> str: ...

    assert str(caught.value).startswith("@on_prompt: ")
    assert "Notes.add returns an answer" in str(caught.value)


def test_a_text_filter_may_be_of_any_class():
    class Notes(Proxy):
        @text_filter("agent")
        def replace(self, session) -> Mapping[str, Any]: ...


def test_none_is_no_result_where_members_are_required():
    shown = mistake_in(on("session/prompt"), "request, forward", "None")
    assert shown == (
        "P.handle handles 'session/prompt' and is annotated to return None; "
        "write `-> PromptResponse or dict`"
    )
    for method in ("session/set_mode", "session/update", "_example/method"):
        define(on(method), "message, forward", "None")
    define(on("session/prompt"), "request, forward", "v1.PromptResponse | None")
    define(on("session/prompt"), "request, forward", "NoReturn")


def test_the_result_is_of_the_version_of_the_message():
    shown = mistake_in(on("session/prompt"), "request: v1.PromptRequest", "v2.PromptResponse")
    assert shown == (
        "P.handle takes a message of protocol version 1 and is annotated to return a result of "
        "version 2; write `-> PromptResponse`, of conductor.schema.v1"
    )
    for request, result in [
        ("request: v2.PromptRequest", "v2.PromptResponse"),
        ("request: v1.PromptRequest", "v1.PromptResponse | v2.PromptResponse"),
        ("request", "v2.PromptResponse"),
    ]:
        define(on("session/prompt"), request, result)
