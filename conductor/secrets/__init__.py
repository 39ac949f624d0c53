"""Secrets: what is one, and how it is found and masked.

- `formats`: the one table of key formats and of names of secrets; whether a name or a value is one.
- `masking`: values that are known to be secret; these, the formats, and secrets with a name beside
  them are masked in logs, errors, reports, traces and stderr of components.
- `finder`: messages: placeholders instead of secrets, also in text that arrives in chunks, with
  patterns of the user and parts of private keys.

May be imported by everything. Only `finder` imports RE2.
"""
