"""Chains for remote clients: the end that listens."""
