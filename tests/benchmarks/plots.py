"""The plot of the comparison, as SVG by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

__all__ = ["bars"]

_COLOURS = [
    "#999999",
    "#1b6ca8",
    "#5499c7",
    "#a9cce3",
    "#b9770e",
    "#e59866",
    "#f5cba7",
    "#1e8449",
    "#884ea0",
]
_STYLE = 'font-family="sans-serif" font-size="12"'


def bars(title: str, groups: Mapping[str, Mapping[str, float]]) -> str:
    """One group of horizontal bars for each measure, on a logarithmic axis of its own."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    left, width, height = 190, 420, 14
    parts, y = [_text(10, 22, title, size=15)], 44
    for group, values in groups.items():
        parts.append(_text(10, y + 8, group, weight="bold"))
        y += 18
        low = min(values.values()) / 2
        span = math.log(max(values.values()) / low)
        for name, value in values.items():
            length = max(1.0, width * math.log(value / low) / span)
            colour = _COLOURS[names.index(name) % len(_COLOURS)]
            parts.append(
                f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{height - 3}" '
                f'fill="{colour}"/>'
            )
            parts.append(_text(left - 6, y + 10, name, anchor="end"))
            parts.append(_text(left + length + 5, y + 10, f"{value:.3g}"))
            y += height
        y += 14
    return _svg(left + width + 70, y, parts)


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal", size: int = 12
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-weight="{weight}" font-size="{size}">{escape(text)}</text>'


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {_STYLE}>\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )
