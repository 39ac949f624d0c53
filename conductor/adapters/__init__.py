"""Adapters: ready-made proxies that the conductor inserts where client and agent do not fit.

`negotiated` reads what each of the two has announced, in either protocol version; `table` says
which proxy puts in what one of them lacks, and where. The chain file can force or switch off each
row (`adapt:`). Pure; `chain.adapter_insertion` starts and connects the proxies. The proxies
themselves are in `proxies/`, on the public API, and can be used by name.
"""
