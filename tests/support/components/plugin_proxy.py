"""`pass_proxy.py --tag`, written on the author's API: a stand-alone program under any conductor."""

from __future__ import annotations

from typing import Any

import attrs

from conductor.proxy import Proxy, on, run


@attrs.define
class Tagger(Proxy):
    """Prefixes `NAME>` to what the agent says, and `[NAME]` to prompts."""

    name: str

    @on("session/prompt")
    async def tag_prompt(self, params: dict, forward: Any) -> Any:
        for block in params["prompt"]:
            if block["type"] == "text":
                block["text"] = f"[{self.name}]{block['text']}"
        return await forward(params)

    @on("session/update")
    async def tag_answer(self, params: dict, forward: Any) -> None:
        update = params["update"]
        if update["sessionUpdate"] == "agent_message_chunk" and "text" in update["content"]:
            update["content"]["text"] = f"{self.name}>{update['content']['text']}"
        await forward(params)


if __name__ == "__main__":
    run(Tagger)
