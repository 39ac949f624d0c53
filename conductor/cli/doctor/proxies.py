"""Probable mistakes in the options and the order of the proxies of a chain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from conductor.chainfile.diagnostics import Diagnostic
from conductor.chainfile.model import ChainFile
from conductor.cli.doctor.finding import Finding
from conductor.cli.plugin_checks import check_plugins

__all__ = ["gather_warnings", "proxy_findings"]

_LIMIT: Final = 2.0
"""Seconds for a proxy; the start of the chain tells if one takes longer."""


def gather_warnings(chain: ChainFile) -> list[Diagnostic]:
    """The warnings of `check`. Errors are left out: the start of the chain reports them.

    Call it before any other process is started (`check_plugins`).
    """
    if all(spec.use is None for spec in chain.flat()):
        return []
    found = check_plugins([chain], start_timeout=_LIMIT)
    return [problem for problem in found if problem.severity == "warning"]


def proxy_findings(warnings: Iterable[Diagnostic]) -> Iterator[Finding]:
    """Findings with the place in the file, and that of the other proxy."""
    for warning in warnings:
        lines = [f"{warning.location}: {warning.message}"]
        if warning.note is not None:
            lines.append(f"{warning.note[0]}: {warning.note[1]}")
        yield Finding("warning", "proxies", "\n".join(lines), warning.help)
