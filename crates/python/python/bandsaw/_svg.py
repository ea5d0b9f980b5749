"""The band map of an image as SVG."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._image import Image

COLUMNS = 96
"""Cells of a row."""
ROWS = 16
"""Rows at most; units share cells in larger images."""
CELL = 8
COLORS = {"absent": "#e8e8e8", "full": "#2f6f9f", "partly free": "#8fb8d6", "free": "#d9a441"}


def band_map(image: Image) -> str:
    """Draws each unit of the disk as a cell: absent, full, partly free or free."""
    found = image._native.units(None)
    size = image.size
    if found is None:
        unit, unit_size = "part", max(1, -(-size // (COLUMNS * ROWS)))
        states = _of_extents(image, unit_size)
    else:
        unit, unit_size = found["unit"], found["unit_size"]
        states = ["absent"] * found["units"]
        for one in found["list"]:
            if one["index"] < len(states):
                whole = min(unit_size, size - one["index"] * unit_size)
                state = "full" if one["free"] == 0 else "free" if one["free"] >= whole else "partly free"
                states[one["index"]] = state
    per_cell = max(1, -(-len(states) // (COLUMNS * ROWS)))
    cells = [_state(states[at : at + per_cell]) for at in range(0, len(states), per_cell)]
    rows = max(1, -(-len(cells) // COLUMNS))
    width, height = COLUMNS * CELL, rows * CELL + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'role="img" font-family="sans-serif" font-size="12">',
        f'<title>{escape(image.path)}</title>',
        f'<text x="0" y="13" fill="currentColor">{escape(image.path)}: {image.format}, {size:,} bytes, '
        f'a cell is {per_cell * unit_size:,} bytes ({escape(unit)})</text>',
    ]
    for number, state in enumerate(cells):
        x, y = number % COLUMNS * CELL, number // COLUMNS * CELL + 20
        parts.append(f'<rect x="{x}" y="{y}" width="{CELL - 1}" height="{CELL - 1}" fill="{COLORS[state]}"/>')
    x = 0
    for state, color in COLORS.items():
        y = rows * CELL + 26
        parts.append(f'<rect x="{x}" y="{y}" width="10" height="10" fill="{color}"/>')
        parts.append(f'<text x="{x + 14}" y="{y + 9}" fill="currentColor">{state}</text>')
        x += 100
    parts.append("</svg>")
    return "".join(parts)


def _of_extents(image: Image, unit_size: int) -> list[str]:
    states = ["absent"] * -(-image.size // unit_size)
    for extent in image.extents():
        if extent.kind == "data":
            for index in range(extent.offset // unit_size, -(-(extent.offset + extent.length) // unit_size)):
                states[index] = "full"
    return states


def _state(states: list[str]) -> str:
    kinds = set(states)
    if len(kinds) == 1:
        return states[0]
    return "partly free" if kinds & {"full", "partly free"} else "free"
