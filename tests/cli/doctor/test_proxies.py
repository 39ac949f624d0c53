from __future__ import annotations

from conductor.chainfile import Diagnostic, SourceLocation
from conductor.cli.doctor.chain import proxy_findings
from conductor.cli.doctor.finding import Finding


def test_a_warning_about_the_order_has_both_places_and_what_to_write():
    first = SourceLocation("chain.yaml", 3, 5, 9, "  - use: redact")
    second = SourceLocation("chain.yaml", 4, 5, 9, "  - use: context")
    order = Diagnostic(second, "context: too late", (first, "`redact` is here"), "swap", "warning")
    option = Diagnostic(second, "context: no file", severity="warning")

    assert list(proxy_findings([order, option])) == [
        Finding(
            "warning",
            "proxies",
            "chain.yaml:4:5: context: too late\nchain.yaml:3:5: `redact` is here",
            "swap",
        ),
        Finding("warning", "proxies", "chain.yaml:4:5: context: no file"),
    ]
