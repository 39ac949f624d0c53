"""Agents and proxies by name: `agent: claude-acp` instead of a command.

    name ─source─▶ entry ─npm, pypi, binary─▶ pin ─store─▶ installed package ─▶ command

`source` finds and reads the registry: the snapshot that is shipped, its refreshed copy, a file or a
URL. A `Pin` names exact versions and checksums, of
all transitive packages; lock files keep pins beside the chain file. `store` holds what is
installed, per pin. `resolve` gives a component its command without any network access, `install`
pins, installs and locks, and `install_program` installs in the process of a component that is not
in the store yet.

Resolving is plain and quick, because it happens at every start; everything that installs is
imported when it is needed. Imports only `conductor.chainfile`, `errors` and each other.
"""
