"""How long each link of a plan is busy, as one SVG picture: a bar per link, the busiest first, the bound as a line."""

from __future__ import annotations

from html import escape

import numpy as np

from synth.collective import Demand
from synth.plan import Plan
from synth.simulator.loads import Loads
from synth.topology import Topology
from synth.units import format_seconds

_LEFT, _RIGHT, _TOP, _ROW, _WIDTH = 250, 150, 64, 15, 1180
_MOST_ROWS = 48
_COLOURS = {"nvlink": "#4c78a8", "c2c": "#72b7b2", "pcie": "#b279a2", "smp": "#9d755d", "network": "#e4873c"}


def bars_svg(
    plan: Plan, topology: Topology, demand: Demand, *, seconds: float, bound_seconds: float | None = None
) -> str:
    """Draw the time that each link needs for what the plan sends over it, coloured by what the link is made of.

    Args:
        plan: valid on the topology.
        topology: where it runs.
        demand: what it moves.
        seconds: the plan's time, which the percentages are of.
        bound_seconds: where to draw the bound.

    Raises:
        InvalidPlan: a transfer has no route.
    """
    busy = Loads.of(plan, topology, demand).link_seconds()
    used = np.flatnonzero(busy > 0)
    order = used[np.argsort(-busy[used], kind="stable")]
    shown = order[:_MOST_ROWS]
    scale = (_WIDTH - _LEFT - _RIGHT) / max(float(busy.max(initial=0.0)), seconds, bound_seconds or 0.0, 1e-300)
    height = _TOP + _ROW * len(shown) + 16
    which = f"the {len(shown)} busiest of {len(order)} links" if len(shown) < len(order) else f"{len(order)} links"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="11">',
        f"<title>Time per link of {escape(plan.collective.value)} on {escape(topology.name)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        '<text x="12" y="22" font-size="15" font-weight="600" fill="#111">time per link</text>',
        f'<text x="12" y="41" fill="#555">{which}; {_legend(topology, shown.tolist())}</text>',
    ]
    for number, position in enumerate(shown.tolist()):
        link, y = topology.links[position], _TOP + number * _ROW
        width = max(float(busy[position]) * scale, 0.3)
        told = f"{format_seconds(float(busy[position]))}, {100 * busy[position] / seconds:.0f} %" if seconds else ""
        parts += [
            f'<text x="{_LEFT - 8}" y="{y + 11}" text-anchor="end" fill="#333">'
            f"{escape(f'{link.src} → {link.dst}')}</text>",
            f'<rect x="{_LEFT}" y="{y + 2}" width="{width:.2f}" height="{_ROW - 4}" '
            f'fill="{_COLOURS[link.link_class.value]}"/>',
            f'<text x="{_LEFT + width + 6:.1f}" y="{y + 11}" fill="#555">{told}</text>',
        ]
    if bound_seconds:
        x = _LEFT + bound_seconds * scale
        parts += [
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 8}" y2="{height - 8}" stroke="#c0392b" '
            'stroke-width="1.5" stroke-dasharray="5 3"/>',
            f'<text x="{x - 4:.1f}" y="{_TOP - 10}" text-anchor="end" fill="#c0392b">bound</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend(topology: Topology, shown: list[int]) -> str:
    kinds = sorted({topology.links[position].link_class.value for position in shown})
    return ", ".join(f'<tspan fill="{_COLOURS[kind]}">■</tspan> {kind}' for kind in kinds)
