"""Listening sockets, TCP and Unix: accept, TLS handshake, protocol detection."""
