"""The timeline of a plan as one SVG picture: a row per link, bars where it is busy, the bound as a dashed line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

import numpy as np

from synth.collective import Demand
from synth.plan import Plan
from synth.simulator import timeline
from synth.simulator.loads import Loads
from synth.topology import Topology
from synth.units import format_bytes, format_seconds

_LEFT, _RIGHT, _TOP, _ROW, _WIDTH = 250, 70, 64, 15, 1180
_MOST_ROWS = 64
_UNSEEN = 1 / 2000
"""Part of the whole time below which a gap is not drawn."""


@dataclass(slots=True)
class _Bar:
    src: int
    begin_ns: float
    end_ns: float
    segments: int = 1

    @property
    def label(self) -> str:
        """What a pointer over the bar shows."""
        return f"rank {self.src} sends {self.segments} segment{'s' if self.segments > 1 else ''}"


def gantt_svg(plan: Plan, topology: Topology, demand: Demand, *, bound_seconds: float | None = None) -> str:
    """Draw the timeline model's schedule, busiest links first, coloured by the rank a bar's data is sent from.

    Args:
        plan: valid on the topology.
        topology: where it runs.
        demand: what it moves.
        bound_seconds: where to draw the bound.

    Raises:
        InvalidPlan: a transfer has no route.
    """
    loads = Loads.of(plan, topology, demand)
    rows, finish_ns = _rows(loads)
    busy = {link: sum(bar.end_ns - bar.begin_ns for bar in bars) for link, bars in rows.items()}
    order = sorted(rows, key=lambda link: (-busy[link], link))
    shown = order[:_MOST_ROWS]
    span = max(finish_ns, (bound_seconds or 0.0) * 1e9, 1e-9)
    scale = (_WIDTH - _LEFT - _RIGHT) / span
    height = _TOP + _ROW * len(shown) + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="11">',
        f"<title>Timeline of {escape(plan.collective.value)} on {escape(topology.name)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="22" font-size="15" font-weight="600" fill="#111">{escape(_headline(loads, demand))}</text>',
        f'<text x="12" y="41" fill="#555">{escape(_subline(finish_ns, bound_seconds, len(order), len(shown)))}</text>',
        *_axis(span, scale, height),
    ]
    for number, link in enumerate(shown):
        y = _TOP + number * _ROW
        name = f"{topology.links[link].src} → {topology.links[link].dst}"
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 11}" text-anchor="end" fill="#333">{escape(name)}</text>')
        parts.append(f'<rect x="{_LEFT}" y="{y + 2}" width="{span * scale:.1f}" height="{_ROW - 4}" fill="#f2f3f5"/>')
        parts += _bars(rows[link], y, scale, len(plan.ranks))
        share = f"{100 * busy[link] / span:.0f} %"
        parts.append(f'<text x="{_WIDTH - _RIGHT + 8}" y="{y + 11}" fill="#555">{share}</text>')
    if bound_seconds:
        x = _LEFT + bound_seconds * 1e9 * scale
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 8}" y2="{height - 26}" stroke="#c0392b" '
            'stroke-width="1.5" stroke-dasharray="5 3"/>'
        )
        parts.append(f'<text x="{x - 4:.1f}" y="{_TOP - 10}" text-anchor="end" fill="#c0392b">bound</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _headline(loads: Loads, demand: Demand) -> str:
    plan = loads.plan
    size = format_bytes(demand.bytes)
    return f"{plan.collective.value} of {size} among {demand.ranks} ranks on {loads.routes.topology.name}"


def _subline(finish_ns: float, bound: float | None, links: int, shown: int) -> str:
    text = f"timeline model: {format_seconds(finish_ns * 1e-9)}"
    if bound:
        text += f", bound {format_seconds(bound)} (+{100 * (finish_ns * 1e-9 / bound - 1):.1f} %)"
    return text + (f"; the {shown} busiest of {links} links" if shown < links else f"; {links} links")


def _rows(loads: Loads) -> tuple[dict[int, list[_Bar]], float]:
    """Bars of each link; what one rank sends with gaps too small to see is one bar."""
    transfers = loads.plan.transfers
    ns_per_byte = 1e9 / loads.routes.topology.bytes_per_s
    played = list(timeline.events(loads))
    finish = max((event.arrival_ns for event in played), default=0.0)
    rows: dict[int, list[_Bar]] = {}
    for event in played:
        t = event.transfer
        src, dst = int(transfers.src[t]), int(transfers.dst[t])
        for link in loads.routes.route(src, dst).tolist():
            end = event.start_ns + float(loads.segment_bytes[t] * ns_per_byte[link])
            bars = rows.setdefault(link, [])
            if bars and bars[-1].src == src and event.start_ns <= bars[-1].end_ns + finish * _UNSEEN:
                bars[-1].end_ns = end
                bars[-1].segments += 1
            else:
                bars.append(_Bar(src, event.start_ns, end))
    return rows, finish


def _bars(bars: Iterable[_Bar], y: int, scale: float, ranks: int) -> list[str]:
    return [
        f'<rect x="{_LEFT + bar.begin_ns * scale:.2f}" y="{y + 2}" '
        f'width="{max((bar.end_ns - bar.begin_ns) * scale, 0.3):.2f}" height="{_ROW - 4}" '
        f'fill="hsl({round(360 * bar.src / ranks)} 60% 55%)"><title>{escape(bar.label)}</title></rect>'
        for bar in bars
    ]


def _axis(span: float, scale: float, height: int) -> list[str]:
    step = 10 ** np.floor(np.log10(span / 4))
    step = float(next(step * factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 8))
    parts = []
    for number in range(int(span / step) + 1):
        x = _LEFT + number * step * scale
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 4}" y2="{height - 28}" stroke="#d5d8dc"/>')
        label = format_seconds(number * step * 1e-9)
        parts.append(f'<text x="{x:.1f}" y="{height - 12}" text-anchor="middle" fill="#555">{label}</text>')
    return parts
