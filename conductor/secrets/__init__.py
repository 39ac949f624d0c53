"""Secrets: what is one, and how it is found and masked.

- `formats`: the one table of key formats and of names of secrets; whether a name or a value is one.
- `registered`: values that are known to be secret; they and the formats are masked in logs, errors
  and reports (`redact`).
- `masking`: traces and stderr of components: also secrets with a name beside them (`members`).
- `finder`: messages: placeholders instead of secrets, also in text that arrives in chunks, with
  patterns of the user (`regex_prefixes`) and parts of private keys (`private_keys`).

May be imported by everything. Only `finder` and `private_keys` import RE2.
"""
