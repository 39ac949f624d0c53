"""Secrets in text: `patterns` says what is one, `finder` finds and replaces them.

`held_tail` does so in text that arrives in chunks. `private_keys` finds keys of several lines;
`regex_prefixes` makes patterns for the beginnings of secrets.
"""
