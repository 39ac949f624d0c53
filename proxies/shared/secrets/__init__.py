"""Secrets in text, whole or in chunks: `finder` finds them, `private_keys` those of several lines.
`regex_prefixes` makes patterns for the beginnings of secrets.
"""
