"""Paths: `globs` matches them, `readings` has the files that a text may mean, `members` the places
in messages where they stand.
"""
