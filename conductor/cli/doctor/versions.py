"""Agents and proxies of the registry: locked, installed, and in the locked version."""

from __future__ import annotations

from collections.abc import Iterator

from conductor.chainfile.model import ChainFile
from conductor.cli.doctor.finding import Finding

__all__ = ["version_findings"]


def version_findings(file: ChainFile) -> Iterator[Finding]:
    """Findings about all components with `registry`; uses no network."""
    specs = [spec for spec in file.flat() if spec.registry is not None]
    if not specs:
        return
    from conductor.cli.check.registry import check_registry, registry_lines

    for problem in check_registry(specs):
        yield Finding(
            "error" if problem.severity == "error" else "warning",
            "versions",
            problem.message,
            problem.help,
        )
    for line in registry_lines(specs):
        yield Finding("ok", "versions", line)
