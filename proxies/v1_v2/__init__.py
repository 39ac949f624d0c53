"""`v1_v2`: a client of one protocol version with an agent of the other.

`proxy` handles the messages; `of_v1_client` and `of_v2_client` have the state of its two cases,
`side` what they have in common. `handshake`, `sessions` and `turns` convert requests, `to_v1` and
`to_v2` the updates of a session, with a module for each part: messages, content, diffs, plans,
terminals, tool calls. `members` copies members of messages; `known_values` has what a client of
version 1 knows. All but `proxy`, `side` and `of_…` are pure.
"""

from proxies.v1_v2.proxy import V1V2

__all__ = ["V1V2"]
