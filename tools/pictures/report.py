"""What records hold, on one page of HTML that needs nothing else."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.errors import ArgumentError, NonFiniteError
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.records.records import JacobianRecords, StepChain, as_chain, chain_label
from bppsa_cupy.system.files import whole_file
from bppsa_cupy.system.units import counted
from bppsa_cupy.tools.pictures import chain_pictures
from bppsa_cupy.tools.pictures.jacobian_picture import COLOURS, KINDS, raster
from bppsa_cupy.tools.pictures.svg import Panel, check_drawing, render

#: Most values that a share of zeros is counted of, most patterns and most chains that are drawn.
VALUES, PATTERNS, CHAINS = 1 << 20, 24, 8
#: Multiply-adds, steps · samples · S³, that the curves of a chain may take; beyond, some of it is looked at.
WORK = 2e9
#: The longest side of a layer's Jacobian whose singular values are computed.
SIDE = 400
ZOOM = """
.pattern { display: block; margin: 0; } .pattern input { margin-right: .4rem; }
.pattern div { overflow: auto; max-height: 40rem; max-width: 26rem; margin-top: .3rem;
  border: 1px solid var(--line); }
.pattern img { display: block; width: 100%; image-rendering: pixelated; background: #440154; }
.pattern:has(input:checked) img { width: 400%; }
#patterns ~ .panels { align-items: start; } .key i { display: inline-block; width: .8em;
  height: .8em; margin: 0 .3em 0 .9em; }
"""
#: Each curve of a chain: its heading, how to read it, and what draws it.
CURVES: tuple[tuple[str, str, Callable[..., None]], ...] = (
    ("Singular values of every step",
     "What a step makes of the lengths of gradients: above 1 they grow, below 1 they shrink. Lines far apart "
     "are directions that fare differently.", chain_pictures.draw_spectrum),
    ("Gradients on their way back",
     "Read from right to left: how large a gradient from the end still is at a step. A straight fall is "
     "forgetting at a constant rate.", chain_pictures.draw_norms),
    ("Exponents as they settle",
     "The mean growth a step, over more and more steps. A line that is level by the end is known; one that "
     "still moves wants more steps.", chain_pictures.draw_running),
    ("Exponents by rank",
     "Below 0 a direction is forgotten, at 0 it is kept, above 0 changes blow up. Grey dots are samples.",
     chain_pictures.draw_exponents),
)  # fmt: skip


@dataclass(frozen=True)
class Report:
    """A self-contained HTML page. A notebook shows it in a frame.

    Attributes
    ----------
    html : str
        The text of the page.

    Examples
    --------
    >>> from bppsa_cupy import Report
    >>> Report("<p>Jacobians</p>").html
    '<p>Jacobians</p>'
    """

    html: str

    def save(self, path: str | os.PathLike[str]) -> int:
        """Write the page to a file and return its size in bytes. Raises BppsaError if writing fails."""
        text = self.html.encode()
        with whole_file(Path(path)) as temporary:
            Path(temporary).write_bytes(text)
        return len(text)

    def _repr_html_(self) -> str:
        frame = 'style="width: 100%; height: 45rem; border: 0"'
        return f'<iframe {frame} srcdoc="{escape(self.html, quote=True)}"></iframe>'


def report(records: Sequence[JacobianRecord], *, title: str = "Transposed Jacobians") -> Report:
    """Make an HTML page about transposed Jacobians, with advice on reading it.

    The page shows shapes, entries, zeros, patterns and spectra, and gradient norms and exponents over time.

    Parameters
    ----------
    records : sequence of JacobianRecord
        Records from a network, a file, or a PyTorch or JAX model (`bppsa_cupy.torch.jacobians`).
    title : str, default: "Transposed Jacobians"
        The heading of the page.

    Returns
    -------
    Report

    Raises
    ------
    ArgumentError
        If `records` is empty or holds other objects.
    BppsaError
        If Matplotlib is missing. Install the extra 'plot'.

    Notes
    -----
    Large inputs are sampled, and the page says so. Zeros are counted on about 2^20 values per layer. The page
    draws at most 24 patterns, and curves for at most 8 pairs of inner layer and direction.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> record = bp.JacobianRecord(0, "ReLU", bp.Pattern.diagonal(3), np.ones((3, 2)))
    >>> "ReLU" in bp.report([record]).html
    True
    """
    check_drawing()
    chosen = JacobianRecords(records)
    if not len(chosen):
        raise ArgumentError("report got no records: pass records of a pass, a file or a model")
    groups: dict[str, list[JacobianRecord]] = {}
    for record in chosen:
        groups.setdefault(chain_label(record), []).append(record)
    values = sum(record.data.size for record in chosen)
    style = files("bppsa_cupy.tools.pictures").joinpath("page.css").read_text(encoding="utf-8") + ZOOM
    layers = counted(len(groups), "layer")
    summary = f"{counted(len(chosen), 'matrix', 'matrices')} of {layers}, {values:,} stored values."
    body = [
        f'<header><h1>{escape(title)}</h1><p class="lead">{summary} Rows of a matrix are the elements of a '
        "layer's input, or of the state before a step; columns are those of its output, or of the state "
        "after.</p></header>",
        "<main>",
        _table(groups),
        _patterns(groups),
        *_layer_curves(groups),
        *_chains(chosen),
        "</main>",
    ]
    return Report(
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _section(name: str, heading: str, text: str, inner: str) -> str:
    return (
        f'<section aria-labelledby="{name}"><h2 id="{name}">{escape(heading)}</h2>\n<p class="about">'
        f"{escape(text)}</p>\n{inner}</section>"
    )


def _table(groups: dict[str, list[JacobianRecord]]) -> str:
    """A row a layer, or a chain of steps."""
    heads = ("layer", "steps", "samples", "shape", "entries", "guaranteed zeros", "zeros", "gradient norm")
    rows, is_sampled = [], False
    for label, group in groups.items():
        first = group[0]
        zeros, part = _zeros(group)
        is_sampled |= part < 1
        norms = [record.gradient_norm for record in group if record.gradient_norm is not None]
        norm = "–" if not norms else f"{norms[0]:.3g}" + (f" … {norms[-1]:.3g}" if len(norms) > 1 else "")
        cells = (
            f"{len(group):,}", "all alike" if first.batch is None else f"{first.batch:,}",
            " × ".join(f"{size:,}" for size in first.pattern.shape), f"{first.pattern.nnz:,}",
            f"{first.pattern.sparsity:.4%}", ("≈ " if part < 1 else "") + f"{zeros:.4%}", norm,
        )  # fmt: skip
        rows.append(f'<tr><th scope="row">{escape(label)}</th>{"".join(f"<td>{c}</td>" for c in cells)}</tr>')
    text = (
        "Guaranteed zeros follow from the layer's geometry; zeros are those of all elements for these "
        "samples. The gap between the two columns is what a pattern cannot know, as units of a ReLU that "
        "are off."
    )
    if is_sampled:
        text += f" Shares with ≈ are counted on a sample of {VALUES:,} values a layer."
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return _section("layers", "Layers and steps", text, f'<div class="table" tabindex="0">{table}</div>')


def _zeros(group: list[JacobianRecord]) -> tuple[float, float]:
    """The share of zeros among all elements of a group, and the part of its values that was looked at."""
    count = sum(record.data.size for record in group)
    each = max(1, VALUES // len(group))
    nonzero = looked = 0
    for record in group[:: max(1, len(group) // VALUES)]:
        flat = record.on_host().data.reshape(-1)
        seen = flat if flat.size <= each else flat[:: -(-flat.size // each)]
        nonzero, looked = nonzero + int(np.count_nonzero(seen)), looked + seen.size
    dense = 1 - group[0].pattern.sparsity
    return 1 - (dense * nonzero / looked if looked else 0.0), looked / count if count else 1.0


def _patterns(groups: dict[str, list[JacobianRecord]]) -> str:
    """Where the entries of each layer's first matrix are, of the first sample."""
    figures = []
    sparse = [group[0] for group in groups.values() if group[0].pattern.sparsity]
    if not sparse:
        return ""
    for record in _spread(sparse, PATTERNS):
        dots, _, step = raster(record)
        scale = "" if step == (1, 1) else f", a dot is {step[0]} × {step[1]} elements"
        shape = " × ".join(f"{size:,}" for size in record.pattern.shape)
        image = base64.b64encode(_png(dots)).decode()
        alt = escape(f"Entries of {record.label}: {record.pattern.nnz:,} of {shape}", quote=True)
        figures.append(
            f"<figure><figcaption>{escape(record.label)}: {shape}{scale}</figcaption>"
            f'<label class="pattern"><input type="checkbox">enlarge'
            f'<div tabindex="0"><img alt="{alt}" src="data:image/png;base64,{image}"></div></label></figure>'
        )
    key = "".join(f'<i style="background:{c}"></i>{kind}' for c, kind in zip(COLOURS, KINDS, strict=True))
    text = "Which inputs (downwards) reach which outputs (across): the first sample, of steps the first one."
    if len(sparse) < len(groups):
        text += " Matrices without guaranteed zeros are left out."
    if len(sparse) > PATTERNS:
        text += f" {PATTERNS} of {len(sparse):,} are drawn, from the first to the last."
    inner = f'<p class="key">{key}</p><div class="panels">{"".join(figures)}</div>'
    return _section("patterns", "Patterns", text, inner)


def _png(dots: np.ndarray) -> bytes:
    from matplotlib.colors import to_rgb
    from matplotlib.image import imsave

    colours = (np.array([to_rgb(colour) for colour in COLOURS]) * 255).round().astype(np.uint8)
    scale = max(1, 240 // max(dots.shape))
    result = io.BytesIO()
    imsave(result, colours[dots].repeat(scale, 0).repeat(scale, 1), format="png")
    return result.getvalue()


def _layer_curves(groups: dict[str, list[JacobianRecord]]) -> Iterator[str]:
    """Spectra of small layers that are no chains, and gradients from layer to layer."""
    single = [group[0] for group in groups.values() if group[0].inner is None]
    small = [r for r in single if 0 < max(r.pattern.shape) <= SIDE and min(r.pattern.shape)]
    if small:

        def spectra(axes: Any) -> None:
            for record in _spread(small, 8):
                values = np.linalg.svd(record.to_scipy().toarray().astype(np.float64), compute_uv=False)
                axes.semilogy(
                    np.arange(1, len(values) + 1), np.where(values > 0, values, np.nan), label=record.label
                )
            axes.set(xlabel="number", ylabel="singular value")
            axes.legend(fontsize=7)

        panel = Panel("Singular values of layers", "Singular values by number, a line a layer", spectra)
        text = "What a layer makes of the lengths of gradients, in each direction, for the first sample."
        if len(small) < len(single):
            text += f" Of {len(small)} of {len(single)} layers: those of at most {SIDE} rows and columns."
        drawing = f'<div class="panels single"><figure>{render(panel, "layers-spectra")}</figure></div>'
        yield _section("spectra", "Spectra of layers", text, drawing)
    known = [record for record in single if record.gradient_norm]
    if len(known) > 1:

        def norms(axes: Any) -> None:
            axes.semilogy([record.gradient_norm for record in known], "o-")
            axes.set_xticks(range(len(known)), [r.label for r in known], rotation=60, ha="right", fontsize=7)
            axes.set_ylabel("norm of the gradient by the output")

        panel = Panel("Gradients by layer", "Norm of the loss's gradient by the output of each layer", norms)
        text = "Read from right to left, as gradients go: where they fall over many layers, they vanish."
        drawing = f'<div class="panels single"><figure>{render(panel, "layers-norms")}</figure></div>'
        yield _section("norms", "Gradients from layer to layer", text, drawing)


def _chains(records: JacobianRecords) -> Iterator[str]:
    """A section a chain of steps."""
    chains = [group for group in records.chains() if group[0].pattern.shape[0]]
    for number, group in enumerate(_spread(chains, CHAINS)):
        chain, note = _looked_at(group)
        text = f"The state has {chain.size} elements." + note
        if len(chains) > CHAINS and not number:
            text += f" {CHAINS} of {len(chains)} chains are shown."
        try:
            figures = [
                f"<figure><figcaption>{escape(heading)}</figcaption><p>{escape(how)}</p>"
                f"{render(_panel(heading, draw, chain), f'chain-{number}-{place}')}</figure>"
                for place, (heading, how, draw) in enumerate(CURVES)
            ]
            inner = f'<div class="panels pair">{"".join(figures)}</div>'
        except NonFiniteError as error:
            inner = f'<p class="notice">{escape(str(error))}</p>'
        yield _section(f"chain-{number}", chain_label(group[0]), text, inner)


def _panel(heading: str, draw: Callable[..., None], chain: StepChain) -> Panel:
    alt = f"{heading} of {chain.label}"
    return Panel(heading, alt, lambda axes: draw(axes, chain), (5.2, 3.6))


def _looked_at(group: JacobianRecords) -> tuple[StepChain, str]:
    """A chain, or so much of it as WORK allows, and what is said of the rest."""
    chain = as_chain("report", group)
    a_step = max(1, chain.size**3)
    steps = min(chain.steps, max(2, int(WORK // a_step)))
    samples = min(chain.batch, max(1, int(WORK // (a_step * steps))))
    if (steps, samples) == (chain.steps, chain.batch):
        return chain, ""
    taken = []
    for r in chain.records[-steps:]:
        values = r.on_host().data.reshape(r.pattern.nnz, -1)[:, :samples]
        ends = None if r.lengths is None else r.lengths[:samples]
        place: dict[str, Any] = {"path": r.path, "lengths": ends}
        taken.append(JacobianRecord(r.layer, r.name, r.pattern, values, r.step, r.direction, **place))
    part = StepChain(tuple(taken))
    note = (
        f" Its curves are of the first {samples} of {chain.batch} samples and the last {steps} of "
        f"{chain.steps} steps."
    )
    return part, note


def _spread(items: Sequence[Any], most: int) -> list[Any]:
    """Some of them, at most so many, from the first to the last."""
    places = np.unique(np.linspace(0, len(items) - 1, min(len(items), most)).round().astype(int))
    return [items[place] for place in places] if len(items) else []
