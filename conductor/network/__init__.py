"""What both ends of a network connection share: addresses, TLS, backoff, cookies, SSE,
WebSockets."""
