"""Plots as SVG, by hand: bars for the comparison, lines for the costs over a scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from xml.sax.saxutils import escape

__all__ = ["bars", "lines"]

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

Points = Sequence[tuple[float, float]]


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


def lines(panels: Mapping[str, tuple[str, Mapping[str, Points]]]) -> str:
    """Panels side by side: title -> what the x axis counts, and series of points. y begins at 0."""
    width, height, left, top = 270, 170, 50, 40
    parts = []
    for index, (title, (axis, series)) in enumerate(panels.items()):
        x0, y0 = left + index * (width + 60), top + height
        points = [point for each in series.values() for point in each]
        logarithmic = max(x for x, _ in points) > 100
        scale_x = _scale([x for x, _ in points], width, logarithmic=logarithmic)
        ceiling = max(y for _, y in points) * 1.3  # room for the names of the series
        parts.append(_text(x0, top - 14, title, weight="bold"))
        parts.append(f'<path d="M{x0} {top}V{y0}H{x0 + width}" fill="none" stroke="#333"/>')
        for share in (0.25, 0.5, 0.75, 1.0):
            y = y0 - share * height
            parts.append(f'<path d="M{x0} {y:.1f}h{width}" stroke="#ddd"/>')
            parts.append(_text(x0 - 5, y + 4, f"{share * ceiling:.2g}", anchor="end"))
        for x in sorted({x for x, _ in points}):
            parts.append(_text(x0 + scale_x(x), y0 + 16, _short(x), anchor="middle"))
        parts.append(_text(x0 + width / 2, y0 + 34, axis, anchor="middle"))
        for number, (name, each) in enumerate(series.items()):
            colour = _COLOURS[1::3][number % 3]
            places = [(x0 + scale_x(x), y0 - y / ceiling * height) for x, y in each]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            parts.append(
                f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
            )
            parts += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places
            ]
            parts.append(
                f'<text x="{x0 + 8}" y="{top + 14 + 15 * number}" fill="{colour}">'
                f"{escape(name)}</text>"
            )
    return _svg(left + len(panels) * (width + 60), top + height + 50, parts)


def _scale(values: Sequence[float], width: float, *, logarithmic: bool) -> Callable[[float], float]:
    low, high = min(values), max(values)
    if logarithmic:
        return lambda x: 12 + (width - 24) * math.log(x / low) / math.log(high / low)
    return lambda x: 12 + (width - 24) * (x - low) / (high - low)


def _short(x: float) -> str:
    power = round(math.log10(x)) if x >= 1000 else 0
    return f"10{'⁰¹²³⁴⁵⁶⁷⁸⁹'[power]}" if power and x == 10**power else f"{x:g}"


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
