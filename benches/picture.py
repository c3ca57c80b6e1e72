"""Draws cost against depth, both logarithmic: one panel for each thing that is measured."""

from __future__ import annotations

from html import escape
from math import ceil, floor, log10
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_COLOURS = ("#c1121f", "#1d3557", "#2a9d8f", "#8d99ae", "#f4a261", "#6a4c93", "#588157")
_WIDTH, _HEIGHT, _LEFT, _TOP, _ACROSS = 330, 268, 76, 30, 3
_UNITS = {-9: "1 ns", -8: "10 ns", -7: "100 ns", -6: "1 us", -5: "10 us", -4: "100 us", -3: "1 ms", -2: "10 ms"}
_UNITS |= {-1: "100 ms", 0: "1 s", 1: "10 s", 2: "100 s", 3: "1,000 s"}


def draw(panels: Mapping[str, Mapping[str, Mapping[int, float]]]) -> str:
    """Draw title -> implementation -> depth -> CPU seconds as an SVG."""
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    colours = dict(zip(names, _COLOURS, strict=False))
    width, rows = _ACROSS * _WIDTH, ceil(len(panels) / _ACROSS)
    height = rows * _HEIGHT + 40
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/><g font-size="11">',
    ]
    for place, (title, lines) in enumerate(panels.items()):
        out += _panel(title, lines, colours, place % _ACROSS * _WIDTH, place // _ACROSS * _HEIGHT)
    for place, name in enumerate(names):
        x, y = 20 + place * (width - 40) / len(names), height - 18
        out.append(f'<path d="M{x:.0f} {y}h18" stroke="{colours[name]}" stroke-width="3"/>')
        out.append(f'<text x="{x + 23:.0f}" y="{y + 4}">{escape(name)}</text>')
    return "\n".join([*out, "</g></svg>", ""])


def _panel(
    title: str, lines: Mapping[str, Mapping[int, float]], colours: Mapping[str, str], left: int, top: int
) -> list[str]:
    values = [value for line in lines.values() for value in line.values()]
    depths = sorted({depth for line in lines.values() for depth in line})
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    last = max(1.0, log10(depths[-1]))

    def x(depth: int) -> float:
        return left + _LEFT + log10(depth) / last * (_WIDTH - _LEFT - 20)

    def y(seconds: float) -> float:
        return top + _TOP + (high - log10(seconds)) / max(1, high - low) * (_HEIGHT - _TOP - 53)

    out = [f'<text x="{x(1):.0f}" y="{top + 18}" font-weight="bold">{escape(title)}</text>']
    for power in range(low, high + 1):
        at = y(10.0**power)
        out.append(f'<path d="M{x(1):.1f} {at:.1f}H{x(depths[-1]):.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{x(1) - 5:.1f}" y="{at + 4:.1f}" text-anchor="end" fill="#555">{_UNITS[power]}</text>')
    out += [
        f'<text x="{x(depth):.1f}" y="{y(10.0**low) + 16:.1f}" text-anchor="middle" fill="#555">{depth:,}</text>'
        for depth in depths
    ]
    across, beside, middle = x(1) + (x(depths[-1]) - x(1)) / 2, left + 14, y(10 ** ((low + high) / 2))
    out.append(f'<text x="{across:.1f}" y="{y(10.0**low) + 33:.1f}" text-anchor="middle">turns</text>')
    turned = f'text-anchor="middle" transform="rotate(-90 {beside:.1f} {middle:.1f})"'
    out.append(f'<text x="{beside:.1f}" y="{middle:.1f}" {turned}>CPU time</text>')
    for name, line in lines.items():
        points = " ".join(f"{x(depth):.1f},{y(seconds):.1f}" for depth, seconds in sorted(line.items()))
        out.append(f'<polyline points="{points}" fill="none" stroke="{colours[name]}" stroke-width="2"/>')
        out += [
            f'<circle cx="{x(depth):.1f}" cy="{y(seconds):.1f}" r="2.5" fill="{colours[name]}"/>'
            for depth, seconds in line.items()
        ]
    return out
