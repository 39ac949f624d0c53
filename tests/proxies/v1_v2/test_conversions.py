"""The conversions between versions 1 and 2, for all that the official schemas allow: what is
converted is valid in the other version, and what is not lost is the same after the way back."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.schema_strategies import check_each, valid, valid_variant, validator, variants

from proxies.v1_v2 import handshake, sessions
from proxies.v1_v2.diffs import diff_to_v1, diff_to_v2
from proxies.v1_v2.known_values import BLOCKS, convert_block
from proxies.v1_v2.to_v1 import SessionToV1, V1Features
from proxies.v1_v2.to_v2 import SessionToV2
from proxies.v1_v2.tool_calls import permission_result_to_v1

pytestmark = pytest.mark.hypothesis
EVERYTHING = V1Features(**{field.name: True for field in attrs.fields(V1Features)})
few = settings(
    max_examples=max(1, settings().max_examples // 2),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),  # shrinking values of this size takes minutes
)

fewer = settings(few, max_examples=few.max_examples // 2 if few.max_examples >= 25 else 2)
"""For each kind and type; the profile `full` has 12 of each."""


def problems(version: int, name: str, value: Any) -> list[str]:
    """What is not valid, but for limits that one version has: its values are left as they are."""
    errors = validator("newest", version, name).iter_errors(value)
    return [each.message for each in errors if _is_real(each)]


def _is_real(error: Any) -> bool:
    if error.validator in ("minimum", "maximum", "minItems", "minLength", "pattern", "format"):
        return False
    if error.validator not in ("anyOf", "oneOf") or not error.context:
        return True
    branches: dict[int, bool] = {}
    for each in error.context:
        branch = each.schema_path[0]
        branches[branch] = branches.get(branch, False) or _is_real(each)
    return all(branches.values())


def of(version: int, name: str) -> st.SearchStrategy[Any]:
    return valid("newest", version, name)


# -- handshake -------------------------------------------------------------------------------------


@few
@given(st.data(), st.sampled_from([1, 2]))
def test_initialize_is_valid_in_the_other_version(data: st.DataObject, version: int) -> None:
    other = 3 - version
    params = handshake.initialize_params(data.draw(of(version, "InitializeRequest")), other)
    result = handshake.initialize_result(data.draw(of(version, "InitializeResponse")), other)
    assert problems(other, "InitializeRequest", params) == []
    assert problems(other, "InitializeResponse", result) == []
    assert params["protocolVersion"] == result["protocolVersion"] == other


# -- sessions --------------------------------------------------------------------------------------

SETUPS = ["NewSessionRequest", "ResumeSessionRequest", "ForkSessionRequest"]


@pytest.mark.parametrize("name", SETUPS)
def test_params_of_a_session_are_valid_in_the_other_version(name: str) -> None:
    @few
    @given(st.data(), st.sampled_from([1, 2]))
    def check(data: st.DataObject, version: int) -> None:
        params = data.draw(of(version, name))
        there = sessions.convert_setup_params(params, 3 - version)
        if not any("type" in each for each in params.get("mcpServers", [])):
            assert problems(3 - version, name, there) == []
        if version == 1:
            assert sessions.convert_setup_params(there, 1) == {"mcpServers": [], **params}

    check()


RESULTS = [
    ("NewSessionResponse", "NewSessionResponse"),
    ("LoadSessionResponse", "ResumeSessionResponse"),
    ("ForkSessionResponse", "ForkSessionResponse"),
]


@pytest.mark.parametrize(("of_v1", "of_v2"), RESULTS)
def test_results_of_a_session_are_valid_in_the_other_version(of_v1: str, of_v2: str) -> None:
    @few
    @given(of(1, of_v1))
    def check_v1(result: Any) -> None:
        there = SessionToV2().setup_result(result)
        assert problems(2, of_v2, there) == []
        back = SessionToV1(EVERYTHING).setup_result(there)
        assert problems(1, of_v1, back) == []
        for option in result.get("configOptions") or []:
            assert option in back["configOptions"]

    @few
    @given(of(2, of_v2))
    def check_v2(result: Any) -> None:
        there = SessionToV1(EVERYTHING).setup_result(result)
        assert problems(1, of_v1, there) == []
        back = SessionToV2().setup_result(there)
        known = [
            each
            for each in result.get("configOptions", [])
            if each["type"] in ("select", "boolean")
        ]
        assert back.get("configOptions", []) == known

    check_v1()
    check_v2()


@few
@given(st.data(), st.sampled_from([1, 2]))
def test_setting_an_option_is_valid_in_the_other_version(data: st.DataObject, version: int) -> None:
    params = data.draw(of(version, "SetSessionConfigOptionRequest"))
    there = sessions.set_option_params(params, 3 - version)
    assert problems(2, "SetSessionConfigOptionRequest", there) == [] or version == 2
    if params.get("type") == "id":
        assert sessions.set_option_params(there, 2) == {**params, "type": "id"}


# -- updates ---------------------------------------------------------------------------------------


def _plain(update: Any) -> Any:
    """The members that survive: not null, which says nothing, nor ids and titles that are added."""
    named = update.get("title") in ("Tool call", update.get("name"))
    added = {"messageId", "sessionUpdate", "title" if named else ""}
    if "compactionId" in update and update.get("status") == "in_progress":
        added.add("status")
    kept = {k: v for k, v in update.items() if v is not None and k not in added}
    if isinstance(kept.get("content"), list):
        kept["content"] = [_plain(item) for item in kept["content"] if not _is_terminal(item)]
    return kept


def _is_terminal(item: Any) -> bool:
    """The client's terminal in version 1, or the text for it, as version 2 has none."""
    block = item.get("content")
    text = block.get("text") if isinstance(block, dict) else None
    return item["type"] == "terminal" or text == "[a terminal of the agent]"


@pytest.mark.parametrize("kind", variants(1, "SessionUpdate"))
def test_each_update_of_version_1_survives_the_way_back(kind: str) -> None:
    def check(update: Any) -> None:
        there, back = SessionToV2(), SessionToV1(EVERYTHING)
        converted = there.convert(update)
        for each in converted:
            assert problems(2, "SessionUpdate", each) == [], each
        returned = [again for each in converted for again in back.convert(each)]
        for each in returned:
            assert problems(1, "SessionUpdate", each) == [], each
        if kind != "current_mode_update":  # nothing without options
            assert _plain(returned[0]) == _plain(update)

    check_each(fewer, check, valid_variant(1, "SessionUpdate", kind))


@pytest.mark.parametrize("kind", variants(2, "SessionUpdate"))
def test_each_update_of_version_2_is_valid_in_version_1(kind: str) -> None:
    def check(update: Any, everything: bool) -> None:
        session = SessionToV1(EVERYTHING if everything else V1Features())
        for each in session.convert(update):
            assert problems(1, "SessionUpdate", each) == [], each

    check_each(fewer, check, valid_variant(2, "SessionUpdate", kind), st.booleans())


@few
@given(valid("newest", 2, "ContentBlock").filter(lambda block: block["type"] not in BLOCKS))
def test_a_block_of_a_type_that_version_1_does_not_have_survives_the_way_back(block: Any) -> None:
    there = convert_block(block, 1)
    assert there["type"] == "text"
    assert convert_block(there, 2) == block


def _has_known_audience(block: Any) -> bool:
    """Whether its roles are those of the schema; converters leave out others."""
    audience = (block.get("annotations") or {}).get("audience")
    return set(audience or ()) <= {"user", "assistant"}


CONTENT = [
    (version, name, kind)
    for version in (1, 2)
    for name in ("ContentBlock", "ToolCallContent")
    for kind in variants(version, name)
]


@pytest.mark.parametrize(("version", "name", "kind"), CONTENT)
def test_each_type_of_content_is_valid_in_the_other_version(
    version: int, name: str, kind: str
) -> None:
    def check(value: Any) -> None:
        wrapped = {"type": "content", "content": value} if name == "ContentBlock" else value
        update = {"sessionUpdate": "tool_call_update", "toolCallId": "c", "content": [wrapped]}
        session = SessionToV2() if version == 1 else SessionToV1(EVERYTHING)
        for each in session.convert(update):
            assert problems(3 - version, "SessionUpdate", each) == [], each
            if kind in BLOCKS and _has_known_audience(value):
                assert each["content"] == [wrapped]

    check_each(fewer, check, valid_variant(version, name, kind, closed=name == "ContentBlock"))


TEXTS = st.text("ab\n\r -+\\é", max_size=12)


@few
@given(st.none() | TEXTS, TEXTS, st.sampled_from(["/a.txt", "/a b/é.py", "/b/c"]))
def test_a_diff_of_version_1_is_the_same_after_the_way_back(
    old: str | None, new: str, path: str
) -> None:
    diff = {"type": "diff", "path": path, "oldText": old, "newText": new}
    there = diff_to_v2(diff)
    assert problems(2, "ToolCallContent", there) == []
    assert diff_to_v1(there) == [diff]


@few
@given(of(2, "Diff"))
def test_any_diff_of_version_2_is_shown_in_version_1(diff: Any) -> None:
    for each in diff_to_v1({**diff, "type": "diff"}):
        assert problems(1, "ToolCallContent", each) == []


# -- permissions -----------------------------------------------------------------------------------


@few
@given(of(1, "RequestPermissionRequest"))
def test_a_permission_request_of_version_1_is_the_same_after_the_way_back(params: Any) -> None:
    there = SessionToV2().permission(params)
    assert problems(2, "RequestPermissionRequest", there) == []
    back = SessionToV1(EVERYTHING).tool_calls.permission(there)
    assert problems(1, "RequestPermissionRequest", back) == []
    assert back["options"] == params["options"]
    assert back["toolCall"]["toolCallId"] == params["toolCall"]["toolCallId"]


@few
@given(of(2, "RequestPermissionRequest"))
def test_a_permission_request_of_version_2_is_valid_in_version_1(params: Any) -> None:
    there = SessionToV1(V1Features()).tool_calls.permission(params)
    assert problems(1, "RequestPermissionRequest", there) == []
    assert [each["optionId"] for each in there["options"]] == [
        each["optionId"] for each in params["options"]
    ]


@few
@given(of(2, "RequestPermissionResponse"))
def test_an_answer_to_a_permission_request_is_valid_in_version_1(result: Any) -> None:
    there = permission_result_to_v1(result)
    assert problems(1, "RequestPermissionResponse", there) == []
