"""What a conductor costs, measured beside a byte relay and beside relays on the official SDKs.

`python -m tests.benchmarks`; docs/development/performance.md tells how to read what it prints.
Everything here needs nothing but the standard library and psutil, and Linux or something like it.
"""
