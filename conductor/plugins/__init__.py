"""Proxies and agents that run in the conductor's process: ports, lanes, scheduler, dispatch,
loading."""
