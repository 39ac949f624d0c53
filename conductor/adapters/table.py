"""Table of adapters: which proxy puts in what a client or an agent lacks, and where. Pure.

A row on the side of the client is decided by the client's `initialize` alone: its proxy stands
nearest the client, sees the agent's answer pass, and can announce more than the client has. A row
on the side of the agent is decided by the agent's answer: its proxy stands right before the agent.
For a client of version 2, rows of both sides may stand behind `v1_v2`, once the agent's answer has
shown that it is needed. docs/adapters.md shows this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from conductor.adapters.known_clients import is_known_to
from conductor.adapters.negotiated import Announced
from conductor.chainfile.model import Adaptation, ComponentSpec

__all__ = [
    "ADAPTERS",
    "Adapter",
    "NeededAdapter",
    "adapter_settings",
    "adapters_for_agent",
    "adapters_for_client",
]


_SESSION: Final = {1: ("sessionCapabilities",), 2: ("session",)}
"""Where an agent announces capabilities of sessions, by version."""

_UNKNOWN_AGENT: Final = Announced(version=1, capabilities={})
"""An agent that has refused `initialize` in version 2: the proxies see what it announces."""


def _no_options(client: Announced, agent: Announced | None) -> dict[str, Any]:
    return {}


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table."""

    name: str
    """The proxy, as in `use:`."""
    side: Literal["client", "agent"]
    """The end of the chain that it is inserted at."""
    is_default: bool
    """Whether it is inserted without being asked for: only where the user sees no difference but
    that something works."""
    client: str
    """Features that the client has or lacks, in words."""
    agent: str
    """Features that the agent has or lacks, in words."""
    effect: str
    """Effect of the proxy, and what the user sees."""
    is_needed: Callable[[Announced, Announced | None], bool]
    """By the client and, on the side of the agent, the agent. It is `None` if it has refused
    `initialize` as invalid."""
    options: Callable[[Announced, Announced | None], dict[str, Any]] = _no_options
    only_with: str | None = None
    """Another adapter that it is inserted with, and not without."""
    restarts_agent: bool = False
    """Whether the agent must get another `initialize` than the client's, in a new process."""
    is_behind_v1_v2: bool = False
    """Whether it serves a client of version 2 with an agent of version 1, too: it stands between
    `v1_v2` and the agent then, and sees a client of version 1."""

    @property
    def condition(self) -> str:
        """When it is inserted with `auto`, in words."""
        return f"client: {self.client}; agent: {self.agent}"


class NeededAdapter(msgspec.Struct, frozen=True):
    """A proxy to insert, with its options."""

    adapter: Adapter
    options: Mapping[str, Any]


def _versions_differ(client: Announced, agent: Announced | None) -> bool:
    if agent is None:
        return client.version in (1, 2)
    return {client.version, agent.version} == {1, 2}


def _lacks_elicitation(client: Announced, agent: Announced | None) -> bool:
    has_both = client.has("elicitation", "form") and client.has("elicitation", "url")
    return client.version == 1 and not has_both


def _options_of_elicitation(client: Announced, agent: Announced | None) -> dict[str, Any]:
    return {"options_by_kind": True} if is_known_to(client, "options_by_kind") else {}


def _options_of_turn_updates(client: Announced, agent: Announced | None) -> dict[str, Any]:
    return {"questions": True} if is_known_to(client, "lose_late_messages") else {}


def _lacks_boolean_options(client: Announced, agent: Announced | None) -> bool:
    return client.version == 1 and not client.has("session", "configOptions", "boolean")


def _lacks_files(client: Announced, agent: Announced | None) -> bool:
    has_both = client.takes("fs/read_text_file") and client.takes("fs/write_text_file")
    return client.version == 1 and not has_both


def _asks_as_cursor(client: Announced, agent: Announced | None) -> bool:
    if client.version != 1 or agent is None or agent.version != 1:
        return False
    return "cursor_login" in agent.auth_methods or "cursor" in agent.name.lower()


def _agent_version(client: Announced, agent: Announced | None) -> dict[str, Any]:
    return {"agent_version": 3 - client.version if agent is None else agent.version}


def _lacks_sessions(client: Announced, agent: Announced | None) -> bool:
    if client.version != 1 or agent is None or agent.version != 1:
        return False
    return not (agent.has("loadSession") and agent.has("sessionCapabilities", "list"))


def _lacks_subagents(client: Announced, agent: Announced | None) -> bool:
    """An agent of version 2 does not ask whether the client knows sessions of subagents."""
    is_of_version_2 = agent is None or agent.version == 2
    return client.version == 1 and not client.has("subagents") and is_of_version_2


def _lacks_queue(client: Announced, agent: Announced | None) -> bool:
    """In version 2 every agent takes prompts while a turn runs; in version 1 some announce it."""
    if agent is None or agent.version != 1:
        return False
    vendors = agent.capabilities.get("_meta")
    return not any(
        isinstance(members, dict) and members.get("promptQueueing") is True
        for members in (vendors.values() if isinstance(vendors, dict) else ())
    )


def _lacks_session_capability(name: str) -> Callable[[Announced, Announced | None], bool]:
    def is_needed(client: Announced, agent: Announced | None) -> bool:
        if agent is None:
            return True  # the proxy sees it
        return not agent.has(*_SESSION[1 if agent.version == 1 else 2], name)

    return is_needed


def _lacks_content(client: Announced, agent: Announced | None) -> bool:
    if agent is None:
        return True  # the proxy sees it
    where = ("promptCapabilities",) if agent.version == 1 else ("session", "prompt")
    return not all(agent.has(*where, name) for name in ("image", "audio", "embeddedContext"))


ADAPTERS: Final = (
    Adapter(
        name="normalize",
        side="client",
        is_default=True,
        client="version 1, known to send MCP servers as the user has written them (CodeCompanion, "
        "agent-shell)",
        agent="takes what the schema says",
        effect="repairs known mistakes, such as `env` as an object",
        is_needed=lambda client, _: client.version == 1 and is_known_to(client, "loose_set_ups"),
    ),
    Adapter(
        name="known_kinds",
        side="client",
        is_default=False,
        client="version 1",
        agent="sends updates, content or values that the stable schema does not have",
        effect="an unknown update is a message, a plan or nothing, unknown content a text, any "
        "other value the nearest that the schema has",
        is_needed=lambda client, _: client.version == 1,
    ),
    Adapter(
        name="boolean_options",
        side="client",
        is_default=False,
        client="version 1 without `session.configOptions.boolean`",
        agent="has boolean options",
        effect="announces the capability; a boolean option is a selection of on and off",
        is_needed=_lacks_boolean_options,
    ),
    Adapter(
        name="elicitation",
        side="client",
        is_default=False,
        client="without `elicitation.form` or `elicitation.url`",
        agent="asks the user with forms or pages",
        effect="announces both; a choice or a page is a permission request, any other form a text "
        "that the next prompt answers. So is a choice in a client known to offer one option of "
        "each kind (CodeCompanion, avante, acpx)",
        is_needed=_lacks_elicitation,
        options=_options_of_elicitation,
        is_behind_v1_v2=True,
    ),
    Adapter(
        name="local_files",
        side="client",
        is_default=False,
        client="without `fs.readTextFile` or `fs.writeTextFile`, as in version 2",
        agent="reads and writes files through the client",
        effect="announces both; serves files of this machine, in the session's directories",
        is_needed=_lacks_files,
        is_behind_v1_v2=True,
    ),
    Adapter(
        name="local_terminals",
        side="client",
        is_default=False,
        client="without `terminal`, as in version 2",
        agent="runs commands in terminals of the client",
        effect="announces terminals; runs commands on this machine; a tool call shows their output "
        "as text",
        is_needed=lambda client, _: client.version == 1 and not client.takes("terminal/create"),
        is_behind_v1_v2=True,
    ),
    Adapter(
        name="notices",
        side="client",
        is_default=False,
        client="version 1 without `session.notices`",
        agent="sends notices",
        effect="announces the capability; a notice is a line of the agent's text",
        is_needed=lambda client, _: client.version == 1 and not client.has("session", "notices"),
    ),
    Adapter(
        name="subagents",
        side="agent",
        is_default=True,
        client="version 1 without `subagents`",
        agent="version 2: gives subagents sessions of their own",
        effect="a subagent is a tool call of its parent's session; its own tool calls and "
        "questions are those of that session",
        is_needed=_lacks_subagents,
        only_with="v1_v2",
    ),
    Adapter(
        name="queue",
        side="agent",
        is_default=False,
        client="sends prompts while a turn runs",
        agent="version 1 that does not announce `promptQueueing`",
        effect="prompts wait for the end of the turn; `/queue` shows and drops them",
        is_needed=_lacks_queue,
    ),
    Adapter(
        name="plan_approval",
        side="client",
        is_default=False,
        client="version 1, known to show only the title of a permission request (CodeCompanion, "
        "acpx)",
        agent="asks for the approval of a plan",
        effect="shows the plan as a message before the request",
        is_needed=lambda client, _: client.version == 1 and is_known_to(client, "hide_plans"),
    ),
    Adapter(
        name="turn_updates",
        side="client",
        is_default=False,
        client="version 1, known to lose updates between turns (CodeCompanion)",
        agent="sends updates between turns",
        effect="keeps them until the next prompt, and questions that the client loses, too",
        is_needed=lambda client, _: (
            client.version == 1 and is_known_to(client, "lose_late_messages")
        ),
        options=_options_of_turn_updates,
    ),
    Adapter(
        name="cursor_questions",
        side="agent",
        is_default=True,
        client="does not know the requests of Cursor's agent",
        agent="Cursor's: asks with `cursor/ask_question` and `cursor/create_plan`",
        effect="what the client answers with error -32601 is a form or a permission request",
        is_needed=_asks_as_cursor,
        is_behind_v1_v2=True,
    ),
    Adapter(
        name="journal",
        side="agent",
        is_default=False,
        client="version 1 or 2",
        agent="version 1 without `session/load` or `session/list`",
        effect="keeps sessions in files; lists, loads, resumes, forks and deletes them. The agent "
        "gets a transcript; a message says so",
        is_needed=_lacks_sessions,
        is_behind_v1_v2=True,
    ),
    Adapter(
        name="system_prompt",
        side="agent",
        is_default=False,
        client="gives a system prompt",
        agent="without the session capability `systemPrompt`",
        effect="announces the capability; the text comes before the first prompt",
        is_needed=_lacks_session_capability("systemPrompt"),
        options=lambda client, agent: {"of_client": True},
    ),
    Adapter(
        name="additional_directories",
        side="agent",
        is_default=False,
        client="opens sessions with several directories",
        agent="without the session capability `additionalDirectories`",
        effect="announces the capability; a text before the first prompt tells the agent of the "
        "directories, its tools may not reach them",
        is_needed=_lacks_session_capability("additionalDirectories"),
    ),
    Adapter(
        name="prompt_content",
        side="agent",
        is_default=False,
        client="sends images, audio or embedded resources",
        agent="does not take one of them",
        effect="announces all; a text is a fenced block, other content a private file that the "
        "agent gets a link to",
        is_needed=_lacks_content,
    ),
    Adapter(
        name="v1_v2",
        side="agent",
        is_default=True,
        client="version 1 or 2",
        agent="the other version only",
        effect="converts all messages; what is lost is in [v1 and v2](adapters-v1-v2.md)",
        is_needed=_versions_differ,
        options=_agent_version,
        restarts_agent=True,
    ),
)
"""In the order in which they stand in the chain, from the client to the agent."""


def adapter_settings(
    adapt: Mapping[str, Adaptation], components: Iterable[ComponentSpec]
) -> Mapping[str, Adaptation]:
    """Settings of the chain file; a proxy that the chain already names is not inserted again."""
    by_name = {spec.use: Adaptation("never") for spec in components if spec.use is not None}
    return {**adapt, **by_name}


def adapters_for_client(
    client: Announced, settings: Mapping[str, Adaptation]
) -> list[NeededAdapter]:
    """The proxies to insert before the first component."""
    rows = (row for row in ADAPTERS if row.side == "client" and not _is_behind(row, client))
    return _needed(rows, client, None, settings)


def adapters_for_agent(
    client: Announced, agent: Announced | None, settings: Mapping[str, Adaptation]
) -> list[NeededAdapter]:
    """The proxies to insert before the agent; `None`: it has refused `initialize` as invalid."""
    rows = (row for row in ADAPTERS if row.side == "agent" and not _is_behind(row, client))
    found = _needed(rows, client, agent, settings)
    if client.version == 2 and "v1_v2" in _names(found):
        behind = (row for row in ADAPTERS if _is_behind(row, client))
        converted = msgspec.structs.replace(client, version=1)
        found += _needed(behind, converted, agent or _UNKNOWN_AGENT, settings)
    return found


def _is_behind(row: Adapter, client: Announced) -> bool:
    return row.is_behind_v1_v2 and client.version == 2


def _needed(
    rows: Iterable[Adapter],
    client: Announced,
    agent: Announced | None,
    settings: Mapping[str, Adaptation],
) -> list[NeededAdapter]:
    found = []
    for row in rows:
        setting = settings.get(row.name)
        mode = setting.mode if setting is not None else "auto" if row.is_default else "never"
        if mode == "always" or (mode == "auto" and row.is_needed(client, agent)):
            written = setting.options if setting is not None else {}
            found.append(NeededAdapter(row, {**row.options(client, agent), **written}))
    names = {None, *_names(found)}
    return [each for each in found if each.adapter.only_with in names]


def _names(needed: Iterable[NeededAdapter]) -> list[str]:
    return [each.adapter.name for each in needed]
