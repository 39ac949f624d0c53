"""`v1_v2`: a client of one protocol version with an agent of the other.

`proxy` handles the messages. Which version the client has makes two cases: `of_v1_client` and
`of_v2_client` have their requests and their state, `side` what they have in common. `handshake` and
`sessions` convert requests. `to_v1` and `to_v2` convert the updates of a session, with modules for
`tool_calls` and `diffs`. `members` copies members of messages; `known_values` has what a client of
version 1 knows. All but `proxy`, `side` and `of_…` are pure.
"""

from proxies.v1_v2.proxy import V1V2

__all__ = ["V1V2"]
