"""Several servers of one service: session directory in Redis, forwarding to the owner of a
connection."""
