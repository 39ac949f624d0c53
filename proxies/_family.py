"""The sessions that the session of a subagent belongs to."""

from __future__ import annotations

from conductor.proxy import Proxy, Session

__all__ = ["family"]


def family(proxy: Proxy, session: Session) -> list[Session]:
    """The session, the one that started it as a subagent, and so on up to the user's session.

    Agents announce these relations; one that is a circle ends where it begins again.
    """
    found = [session]
    while (parent := found[-1].parent) is not None:
        above = proxy.session_by_id(parent)
        if above in found:
            break
        found.append(above)
    return found
