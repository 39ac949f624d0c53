"""Peers on other machines: the network as a pump on the far side of a memory pair."""
