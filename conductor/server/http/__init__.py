"""Streamable HTTP, server end: one endpoint, POST in, event streams out."""
