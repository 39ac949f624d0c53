"""`redact`: hides secrets from the model and from the screen.

Secrets are found by pattern (API keys, tokens, private keys) and by value (of environment
variables). Toward the agent they are replaced in prompts and in the client's responses about files
and terminals; toward the client in all messages of the agent, including errors, `_meta` and member
names. A secret that arrives in chunks is found too: the possible beginning of one is held back
until it cannot be one, until another message of the conversation, or until the turn ends.

The agent sees `[redacted:github-token:1]`; in a file that it writes, the secret is restored. In
commands it is not: a prompt injection could send it away.

Options:
    builtin      the built-in patterns that are used, by name; default all
    patterns     further patterns, by name: regular expressions (RE2); if only a part of the match
                 is the secret, it is the group `(?P<secret>…)`
    environment  globs for the names of variables with secret values; default *TOKEN*,
                 *SECRET*, *PASSWORD*, *API_KEY*, *PRIVATE_KEY*, *ACCESS_KEY*
    shortest     minimum length of a secret value; default 8
    hold         maximum bytes held back; default 16384. A longer secret is replaced up to the
                 next white space.

Not searched: identifiers, enumerations and MIME types in their places of the schema; images and
other base64; operations that the agent requests of the client (paths, commands, their arguments and
environment); settings of sessions and providers (MCP servers with their environment and headers);
next edit suggestions; extension methods and MCP messages; files that the agent reads by itself;
secrets that are encoded or otherwise changed. `required`: the chain does not run without it.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping
from typing import Any

import attrs
from attrs.validators import gt

from conductor.acp import MAX_AGENTS_ID
from conductor.bounded_dict import BoundedDict
from conductor.proxy import Forward, Placement, Proxy, RequestError, on, per_session
from conductor.proxy.text_streams import TEXT_CHUNKS, TextStreams, chunk_text, with_chunk_text
from conductor.secrets.finder import PATTERNS, HeldTail, SecretFinder
from proxies.redact.text_positions import ANSWER, REQUEST, TextCleaner
from proxies.shared.regex import compile_pattern

__all__ = ["Redact"]

_VARIABLES = ["*TOKEN*", "*SECRET*", "*PASSWORD*", "*API_KEY*", "*PRIVATE_KEY*", "*ACCESS_KEY*"]
_MOST_SUBAGENTS = 200
"""Maximum per session; the oldest are forgotten."""
_FOR_MODEL = frozenset({"systemPrompt", "title"})
"""Members of requests other than prompts that the model may read. Other members, such as the
environment and headers of MCP servers, are for the agent."""


def _check_names(instance: Any, field: Any, value: list[str]) -> None:
    for name in value:
        if name not in PATTERNS:
            raise ValueError(f"there is no built-in pattern `{name}`, only {', '.join(PATTERNS)}")


def _check(instance: Any, field: Any, value: Mapping[str, str]) -> None:
    for name, pattern in value.items():
        try:
            compiled = compile_pattern(pattern)
        except ValueError as exc:
            raise ValueError(f"`{name}` is {exc}") from None
        if compiled.fullmatch(""):
            raise ValueError(f"`{name}` matches everywhere: it matches the empty text")


@attrs.define
class Redact(Proxy):
    """Replace secrets by placeholders."""

    required = True

    builtin: list[str] = attrs.field(factory=lambda: list(PATTERNS), validator=_check_names)
    patterns: dict[str, str] = attrs.field(factory=dict, validator=_check)
    environment: list[str] = attrs.field(factory=lambda: list(_VARIABLES))
    shortest: int = attrs.field(default=8, validator=gt(3))
    hold: int = attrs.field(default=16384, validator=gt(0))
    _secrets: SecretFinder = attrs.field(init=False, repr=False)
    _texts: TextCleaner = attrs.field(init=False, repr=False)

    @per_session
    def streams(self) -> TextStreams:
        return TextStreams(lambda: HeldTail(self._secrets, self.hold))

    @per_session
    def subagents(self) -> BoundedDict[str, bool]:
        """The sessions of a session's subagents, and whether each is at work."""
        return BoundedDict(_MOST_SUBAGENTS)

    def __attrs_post_init__(self) -> None:
        values = {
            name: value
            for name, value in os.environ.items()
            if len(value) >= self.shortest
            and any(fnmatch.fnmatchcase(name, glob) for glob in self.environment)
        }
        chosen = {name: PATTERNS[name] for name in self.builtin}
        self._secrets = SecretFinder({**self.patterns, **chosen}, values)
        self._texts = TextCleaner(self._secrets.redact)

    def placement(self) -> Placement:
        return Placement(
            after={
                "adds_text": "secrets in the texts that it adds reach the agent",
                "serves_client": "secrets in what it gives to the agent are not redacted",
            },
            before={"opens_agents": "secrets reach the agents that it opens"},
        )

    # -- toward the agent --------------------------------------------------------------------------

    @on("session/prompt")
    async def prompt(self, params: dict[str, Any], forward: Forward) -> Any:
        try:
            return await self._forward_redacted_request(params, forward)
        finally:
            await self._flush_with_subagents(params["sessionId"])

    @on("session/load", "session/resume", "session/close", "session/delete")
    async def reopen_or_close(self, params: dict[str, Any], forward: Forward) -> Any:
        """Held-back text is sent before the response."""
        try:
            return await self._forward_request(params, forward)
        finally:
            await self._flush(params["sessionId"])

    @on(
        *("auth/login", "auth/logout", "auth/status", "authenticate", "initialize", "logout"),
        *("providers/disable", "providers/list", "providers/set"),
        *("session/archive", "session/fork", "session/list", "session/new", "session/options"),
        *("session/set_mode", "session/set_config_option", "session/set_title"),
        *("session/status", "session/unarchive"),
        *("terminal/cancel", "tool_call/cancel"),
    )
    async def request(self, params: dict[str, Any], forward: Forward) -> Any:
        return await self._forward_request(params, forward)

    @on("fs/read_text_file", "terminal/output")
    async def output(self, params: dict[str, Any], forward: Forward) -> Any:
        await self._flush(params.get("sessionId", ""))
        return await self._redact_response(forward, None, self._texts)

    @on("terminal/create", "terminal/kill", "terminal/release", "terminal/wait_for_exit")
    async def operation(self, params: dict[str, Any], forward: Forward) -> Any:
        return await self._redact_response(forward, None, self._texts)

    # -- toward the client -------------------------------------------------------------------------

    @on("session/update")
    async def update(self, params: dict[str, Any], forward: Forward) -> None:
        text = chunk_text(params["update"])
        if params["update"]["sessionUpdate"] == "subagent_update":
            await self._note_subagent(params["sessionId"], params["update"])
        if text is None or params["update"]["sessionUpdate"] not in TEXT_CHUNKS:
            params = self._texts.clean(params, REQUEST)
        else:
            others = with_chunk_text(params, "")
            if (cleaned := self._texts.clean(others, REQUEST)) is not others:
                params = with_chunk_text(cleaned, text)
        for shown in await self.streams[params["sessionId"]].rewrite(params):
            await forward(shown)

    @on("auth/status_update", "elicitation/complete")
    async def notification(self, params: dict[str, Any], forward: Forward) -> None:
        cleaned = self._texts.clean(params, REQUEST)
        await (forward() if cleaned is params else forward(cleaned))

    @on("session/request_permission", "elicitation/create")
    async def question(self, params: dict[str, Any], forward: Forward) -> Any:
        await self._flush(params.get("sessionId", ""))
        return await self._forward_redacted_request(params, forward)

    @on("fs/write_text_file")
    async def write(self, params: dict[str, Any], forward: Forward) -> Any:
        restored = {**params, "content": self._secrets.restore(params["content"])}
        return await self._redact_response(forward, restored, self._texts)

    # ----------------------------------------------------------------------------------------------

    async def _forward_request(self, params: dict[str, Any], forward: Forward) -> Any:
        """Forward a request of the client: redact its members for the model, and the response."""
        changed = {
            name: self._texts.clean(params[name], REQUEST.get(name, {}))
            for name in _FOR_MODEL & params.keys()
        }
        same = all(changed[name] is params[name] for name in changed)
        return await self._redact_response(
            forward, None if same else {**params, **changed}, self._texts
        )

    async def _forward_redacted_request(self, params: dict[str, Any], forward: Forward) -> Any:
        """Forward a request: redact all its texts, and the response. Params without a secret are
        forwarded as they are, without being encoded again."""
        cleaned = self._texts.clean(params, REQUEST)
        changed = None if cleaned is params else cleaned
        return await self._redact_response(forward, changed, self._texts)

    async def _redact_response(
        self, forward: Forward, params: dict[str, Any] | None, cleaner: TextCleaner
    ) -> Any:
        """Forward a request, unchanged or with these params; redact the response."""
        try:
            result = await (forward() if params is None else forward(params))
        except RequestError as exc:
            raise RequestError(exc.code, *cleaner.clean([exc.message, exc.data], {})) from None
        return cleaner.clean(result, ANSWER)

    async def _flush(self, session_id: str) -> None:
        """Send the held-back ends of a session's texts."""
        for shown in await self.streams[session_id].end():
            await self.client.notify("session/update", shown)

    async def _note_subagent(self, parent: str, update: dict[str, Any]) -> None:
        """The texts of a subagent end when it is idle."""
        state = update.get("state")
        if isinstance(child := update.get("sessionId"), str):
            runs = isinstance(state, dict) and state.get("state") != "idle"
            below = self.subagents[parent]
            if len(child) <= MAX_AGENTS_ID:
                below[child] = runs
                below.move_to_end(child)
            if isinstance(state, dict) and not runs:
                await self._flush_with_subagents(child)

    async def _flush_with_subagents(self, session_id: str) -> None:
        """Also the texts of subagents that are not at work: an agent may tell no state."""
        ended, seen = [session_id], set[str]()
        while ended:
            seen.add(session := ended.pop())
            await self._flush(session)
            below = self.subagents[session].items()
            ended += [each for each, runs in below if not runs and each not in seen]
