"""The APIs through which agents ask the scripted model, chosen by the path of the request.

Requests of Gemini, and of OpenAI's Responses, are brought into the form of OpenAI's chat
completions; those of Anthropic are near enough to it. Answers are brought into the form of the API.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["anthropic_answer", "gemini_answer", "in_chat_form", "responses_answer"]


def in_chat_form(path: str, asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """A request with the roles of OpenAI, where the result of a tool has the role "tool"."""
    if "enerateContent" in path:
        messages = [_from_gemini(each) for each in asked["contents"]]
        return {"messages": messages, "tools": asked.get("tools")}
    if path.endswith("/responses"):
        messages = [_from_responses(each) for each in asked["input"]]
        return {"messages": messages, "tools": asked.get("tools")}
    return asked


def _from_gemini(content: Mapping[str, Any]) -> dict[str, Any]:
    is_result = any("functionResponse" in each for each in content["parts"])
    return {"role": "tool" if is_result else content["role"], "content": content["parts"]}


def _from_responses(item: Mapping[str, Any]) -> dict[str, Any]:
    if item["type"] == "function_call_output":
        return {"role": "tool", "content": item["output"]}
    return {"role": item.get("role", "assistant"), "content": item}


def anthropic_answer(message: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Content type and body of a streamed message."""
    block: dict[str, Any] = {"type": "text", "text": ""}
    delta: dict[str, Any] = {"type": "text_delta", "text": message["content"]}
    reason = "end_turn"
    for call in _calls(message):
        block = {"type": "tool_use", "id": call["id"], "name": call["name"], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call["arguments"])}
        reason = "tool_use"
    usage = {"input_tokens": 1, "output_tokens": 1}
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": "test", "content": []}
    events = [
        {"type": "message_start", "message": {**start, "stop_reason": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage},
        {"type": "message_stop"},
    ]
    return _events(events)


def gemini_answer(message: Mapping[str, Any], *, is_streamed: bool) -> tuple[bytes, bytes]:
    """Content type and body of one candidate."""
    parts: list[dict[str, Any]] = [
        {"functionCall": {"name": call["name"], "args": call["arguments"]}}
        for call in _calls(message)
    ]
    content = {"role": "model", "parts": parts or [{"text": message["content"]}]}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    candidate = {"content": content, "finishReason": "STOP", "index": 0}
    body = json.dumps({"candidates": [candidate], "usageMetadata": usage}).encode()
    if is_streamed:
        return b"text/event-stream", b"data: %b\r\n\r\n" % body
    return b"application/json", body


def responses_answer(message: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Content type and body of a streamed response of one item."""
    text = {"type": "output_text", "text": message["content"], "annotations": []}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "content": [text]}
    for call in _calls(message):
        names = {**call, "arguments": json.dumps(call["arguments"]), "id": "fc_1"}
        item = {"type": "function_call", "call_id": call["id"], **names}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    response = {"id": "resp_1", "object": "response", "output": [item], "usage": usage}
    events = [
        {"type": "response.created", "response": {**response, "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {**response, "status": "completed"}},
    ]
    return _events(events)


def _events(events: Sequence[Mapping[str, Any]]) -> tuple[bytes, bytes]:
    lines = [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events]
    return b"text/event-stream", "".join(lines).encode()


def _calls(message: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    return [
        {**function, "id": each["id"], "arguments": json.loads(function["arguments"])}
        for each in message.get("tool_calls", ())
        for function in [each["function"]]
    ]
