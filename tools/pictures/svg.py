"""Drawings as SVG that a page can hold: text stays text, and no two drawings share an id."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from typing import Any

from bppsa_cupy.errors import BppsaError

#: Inches of a panel: three lie beside each other on a wide screen, one on a telephone.
SIZE = (4.4, 3.3)
STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e5e7eb",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8,
}


@dataclass(frozen=True)
class Panel:
    """One drawing: what it shows in a line, and in words for who does not see it, and what draws it on
    Matplotlib's axes."""

    title: str
    alt: str
    draw: Callable[[Any], None]
    size: tuple[float, float] = SIZE


def check_drawing() -> None:
    """Raise BppsaError where there is no Matplotlib."""
    if find_spec("matplotlib") is None:
        raise BppsaError("the page's figures need matplotlib: install the extra 'plot'")


def render(panel: Panel, prefix: str) -> str:
    """The panel as an SVG element of HTML, as wide as its box; `prefix` begins all its ids."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**STYLE, "svg.hashsalt": prefix}):
        figure = Figure(figsize=panel.size, layout="constrained")
        FigureCanvasSVG(figure)
        panel.draw(figure.subplots())
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
    return _embedded(text.getvalue(), prefix, panel)


def _embedded(text: str, prefix: str, panel: Panel) -> str:
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r'(href="|url\()#', rf"\1#{prefix}-", text)
    head, rest = text.split(">", 1)
    view = re.search(r'viewBox="[^"]+"', head)
    assert view is not None
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    label = escape(panel.alt, quote=True)
    return f'<svg {view.group()} {names} role="img" aria-label="{label}">{rest.strip()}'
