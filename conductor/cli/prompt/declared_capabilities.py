"""Capabilities that an agent has declared in `initialize`, as far as `prompt` uses them;
both protocol versions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

__all__ = ["DeclaredCapabilities", "declared_capabilities"]


@attrs.frozen
class DeclaredCapabilities:
    """The capabilities of an agent."""

    image: bool = False
    """Prompts may have images."""
    embedded_context: bool = False
    """Prompts may have the content of files; links are always allowed."""
    load: bool = False
    """`session/load`: continue a session, with its history."""
    resume: bool = False
    """`session/resume`: continue a session."""


def declared_capabilities(answer: Mapping[str, Any], version: int) -> DeclaredCapabilities:
    """The capabilities in the result of `initialize`, in this version of the protocol."""
    if version == 1:
        agent = _member(answer, "agentCapabilities")
        prompt = _member(agent, "promptCapabilities")
        return DeclaredCapabilities(
            image=prompt.get("image") is True,
            embedded_context=prompt.get("embeddedContext") is True,
            load=agent.get("loadSession") is True,
            resume=_member(agent, "sessionCapabilities").get("resume") is not None,
        )
    prompt = _member(_member(_member(answer, "capabilities"), "session"), "prompt")
    return DeclaredCapabilities(
        image=prompt.get("image") is not None,
        embedded_context=prompt.get("embeddedContext") is not None,
        resume=True,  # required of agents
    )


def _member(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = holder.get(name)
    return value if isinstance(value, Mapping) else {}
