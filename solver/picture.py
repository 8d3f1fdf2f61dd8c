"""A solve as a picture: time per link, the timeline of the rounds, and in a page also the explanation."""

from __future__ import annotations

import re
from html import escape

from solver.portfolio import Solved
from synth.errors import InputError
from synth.simulator.bars import bars_svg
from synth.simulator.gantt import gantt_svg
from synth.topology import Topology

MOST_RANKS = 256
SUFFIXES = (".svg", ".html")


def check(file: str, ranks: int) -> None:
    """Refuse what cannot be drawn, before anything is solved.

    Raises:
        InputError: the file's name ends otherwise, or there are too many ranks.
    """
    if not file.endswith(SUFFIXES):
        raise InputError(f"--picture: {file} must end in {' or '.join(SUFFIXES)}", subject="--picture")
    if ranks > MOST_RANKS:
        raise InputError(f"--picture: {ranks} ranks; at most {MOST_RANKS} are drawn", subject="--picture")


def draw(solved: Solved, topology: Topology, lines: list[str], *, page: bool) -> str:
    """One SVG, or one HTML page that needs nothing else.

    Args:
        solved: on this topology.
        topology: where it runs.
        lines: the explanation, shown on a page.
        page: whether it shall be one.
    """
    bars = bars_svg(
        solved.plan,
        topology,
        solved.demand,
        seconds=solved.predicted_seconds,
        bound_seconds=solved.bound.certificate.bound_ns * 1e-9,
    )
    gantt = gantt_svg(solved.plan, topology, solved.demand, bound_seconds=solved.bound.seconds)
    if not page:
        return _stacked(gantt, bars)
    title = escape(f"{solved.demand.collective.value} on {topology.name}")
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
            "<style>body{font:15px system-ui,sans-serif;max-width:1180px;margin:24px auto;padding:0 12px}</style>",
            f"</head><body><h1>{title}</h1>",
            "<ul>",
            *(f"<li>{escape(line)}</li>" for line in lines),
            "</ul>",
            gantt,
            bars,
            "</body></html>\n",
        ]
    )


def _stacked(*pictures: str) -> str:
    """Pictures below one another."""
    parts, y, width = [], 0, 0
    for picture in pictures:
        found = re.search(r'viewBox="0 0 (\d+) (\d+)"', picture)
        assert found is not None
        width, height = int(found[1]), int(found[2])
        parts.append(picture.replace("<svg ", f'<svg x="0" y="{y}" width="{width}" height="{height}" ', 1))
        y += height
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}">\n{"".join(parts)}</svg>\n'
