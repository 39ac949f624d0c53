"""Helpers of the tests: scripted peers, components without processes, clients and servers."""
