"""Findings of `doctor`: the check, its result, and the remedy. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, TypeAlias

import msgspec

__all__ = ["Finding", "Severity", "in_order", "is_wrong", "text_lines"]

Severity: TypeAlias = Literal["error", "warning", "ok"]
_ORDER: Final[tuple[Severity, ...]] = ("error", "warning", "ok")


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One result of a check."""

    severity: Severity
    check: str
    """Name of the check: `python`, `programs`, `start`, …"""
    message: str
    help: str | None = None
    """The remedy."""
    seconds: float | None = None
    """Duration of a start."""

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return {"severity": self.severity, **found}


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The findings by severity; those of one severity stay in the order of the checks."""
    return sorted(findings, key=lambda finding: _ORDER.index(finding.severity))


def is_wrong(findings: Iterable[Finding]) -> bool:
    return any(finding.severity == "error" for finding in findings)


def text_lines(findings: Iterable[Finding]) -> Iterator[str]:
    """The report as text, without the control characters in the output of programs."""
    from conductor.cli.terminal_text import printable

    for finding in in_order(findings):
        time = "" if finding.seconds is None else f" ({finding.seconds * 1000:.0f} ms)"
        first, *more = finding.message.splitlines() or [""]
        yield printable(f"{finding.severity:<7}  {finding.check}: {first}{time}")
        yield from (printable(f"{'':9}{line}") for line in more)
        for line in (finding.help or "").splitlines():
            yield printable(f"{'':9}→ {line}")
