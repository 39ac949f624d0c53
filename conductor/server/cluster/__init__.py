"""Several servers (nodes) of one service behind a load balancer.

- `directory`: which node has which connection and session, in Redis.
- `claims`: which principals may use a session, in Redis; `principal_claims`: those of one client.
- `registration`: a proxy that publishes the sessions of one client.
- `forward`, `tunnel`: requests and WebSockets passed on to the node that has their connection.
"""
