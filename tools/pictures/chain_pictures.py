"""Pictures of step Jacobians over time: singular values, how gradients go back, Lyapunov exponents."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.errors import JacobianFileError
from bppsa_cupy.records.chain import StepChain
from bppsa_cupy.records.lyapunov import chain_exponents, places, stretches
from bppsa_cupy.records.records import JacobianRecords, as_chain
from bppsa_cupy.records.spectra import log_gradient_norms, singular_values
from bppsa_cupy.tools.pictures.picture_file import picture

#: Most chains of a picture, and most lines of a panel.
CHAINS, LINES = 8, 32
#: Orders of magnitude below the largest value that a logarithmic axis shows at most.
DECADES = 12
WIDTH, HEIGHT = 7.5, 2.9


def plot_spectrum(chains: Sequence[JacobianRecords], path: Path) -> None:
    """Singular values of every step: the median over the samples that have the step."""
    with _panels(chains, path) as panels:
        for (axes,), chain, lengths in panels:
            draw_spectrum(axes, chain, lengths)


def draw_spectrum(axes: Any, chain: StepChain, lengths: np.ndarray) -> None:
    """The same of one chain."""
    ranks = _ranks(chain.size)
    lines = _median(singular_values(chain.records)[:, :, ranks], chain.live(lengths))
    largest = float(np.nanmax(lines, initial=0))
    lines[~(lines > largest * 10.0**-DECADES)] = np.nan
    _draw_ranks(axes, _times(chain), np.log10(lines), ranks, chain.size, "singular value no.")
    axes.axhline(0, color="0.35", linestyle="--", linewidth=0.9)
    _decades(axes)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="time step $t$", ylabel="singular value of ∂s$_t$/∂s$_{t-1}$")
    axes.set_title(f"{chain.label}{_of_samples(chain)}", fontsize=10)


def plot_norms(chains: Sequence[JacobianRecords], path: Path) -> None:
    """Norms of gradients by the states of all steps: of the one that grows most on its way back from the end
    of each sample, and of the loss's where the records have them."""
    with _panels(chains, path) as panels:
        for (axes,), chain, lengths in panels:
            draw_norms(axes, chain, lengths)


def draw_norms(axes: Any, chain: StepChain, lengths: np.ndarray) -> None:
    """The same of one chain."""
    logs = log_gradient_norms(chain.records) / math.log(10)
    logs[~chain.live(lengths) | np.isneginf(logs)] = np.nan
    times = _times(chain)
    marker = "." if chain.steps == 1 else ""
    if chain.batch > 1:
        told = "each sample" if chain.batch <= LINES else f"{LINES} samples"
        each = axes.plot(times, logs[:, :LINES], marker=marker, color="0.7", linewidth=0.7)
        each[0].set_label(told)
    if (lengths == lengths[0]).all():  # else the median jumps where samples end
        middle = _median(logs[:, :, None], ~np.isnan(logs))[:, 0]
        label = "median of the samples" if chain.batch > 1 else "the sample"
        axes.plot(times, middle, marker=marker, color="C0", label=label)
    _draw_loss(axes, chain, times)
    _draw_limits(axes, times[0])
    _decades(axes)
    axes.xaxis.get_major_locator().set_params(integer=True)
    end = f"step {times[0]}" if chain.reverse else "a sample's last step"
    axes.set(xlabel="time step $t$", ylabel="norm of the gradient by s$_t$")
    axes.set_title(f"{chain.label}: ‖∂s/∂s$_t$‖, s after {end}", fontsize=10)
    axes.legend(fontsize=8)


def _draw_loss(axes: Any, chain: StepChain, times: np.ndarray) -> None:
    """The norms that the records have of the loss's gradient."""
    norms = [record.gradient_norm for record in chain.records]
    if None in norms:
        return
    with np.errstate(divide="ignore"):
        logs = np.log10(np.array(norms, np.float64))
    logs[np.isneginf(logs)] = np.nan
    axes.plot(times, logs, "--", color="C3", linewidth=1.2, label="the loss's, over the batch")


def _draw_limits(axes: Any, first: int) -> None:
    """The ends of float32's range that lie inside the panel."""
    bottom, top = axes.get_ylim()
    for limit in (np.finfo(np.float32).tiny, np.finfo(np.float32).max):
        height = math.log10(limit)
        if bottom < height < top:
            axes.axhline(height, color="0.35", linestyle=":", linewidth=0.9)
            axes.text(first, height, " end of float32's normal range", fontsize=8, va="bottom")


def plot_lyapunov(chains: Sequence[JacobianRecords], path: Path) -> None:
    """Exponents as their averages settle along the walk, and those of the whole walk by rank."""
    with _panels(chains, path, (2.2, 1)) as panels:
        for (running, final), chain, lengths in panels:
            draw_running(running, chain, lengths)
            draw_exponents(final, chain, lengths)


def draw_running(axes: Any, chain: StepChain, lengths: np.ndarray) -> None:
    """Exponents of one chain as their averages settle."""
    ranks = _ranks(chain.size)
    lines = _running(chain, lengths)[:, :, ranks]
    walked = np.arange(1, len(lines) + 1)
    middle = _median(lines, walked[:, None] <= lengths)
    _draw_ranks(axes, walked, middle, ranks, chain.size, "exponent no.")
    axes.axhline(0, color="0.35", linestyle="--", linewidth=0.9)
    largest = chain_exponents(chain.records, lengths=lengths)[:, 0]
    largest = largest[~np.isneginf(largest)]
    first = float(np.median(largest)) if largest.size else -math.inf
    axes.set_title(f"{chain.label}{_of_samples(chain)}: λ$_1$ = ${first:.3f}$ a step", fontsize=10)
    axes.set(xlabel="steps of the walk", ylabel="mean log stretch a step")
    axes.set_xlim(0, len(lines) + 1)
    axes.xaxis.get_major_locator().set_params(integer=True)


def draw_exponents(axes: Any, chain: StepChain, lengths: np.ndarray) -> None:
    """Exponents of one chain, by rank."""
    exponents = chain_exponents(chain.records, lengths=lengths)
    exponents[np.isneginf(exponents)] = np.nan
    order = np.arange(1, chain.size + 1)
    axes.plot(order, exponents.T, ".", color="0.7", markersize=3)
    axes.plot(order, _median(exponents.T[:, :, None], ~np.isnan(exponents.T))[:, 0], "o-",
              color="C0", markersize=3, linewidth=1)  # fmt: skip
    axes.axhline(0, color="0.35", linestyle="--", linewidth=0.9)
    axes.set(xlabel="exponent no.", ylabel="Lyapunov exponent, 1 / step", xlim=(0, chain.size + 1))
    axes.xaxis.get_major_locator().set_params(integer=True)


@contextmanager
def _panels(
    chains: Sequence[JacobianRecords], path: Path, widths: Sequence[float] = (1,)
) -> Iterator[Iterator[tuple[Any, StepChain, np.ndarray]]]:
    """Axes, chain and lengths of each row of a picture, which is written at the block's end."""
    if not 1 <= len(chains) <= CHAINS:
        raise JacobianFileError(
            f"there are {len(chains)} chains of steps of recurrent layers: a picture takes 1 to {CHAINS}, "
            "choose some with --layer, --inner or --direction"
        )
    found = [as_chain("a picture", chain) for chain in chains]
    size = WIDTH, HEIGHT * len(chains) + 0.2
    options = {"figsize": size, "squeeze": False, "layout": "constrained", "width_ratios": list(widths)}
    with picture(path, len(chains), len(widths), save={"dpi": 150}, **options) as (_, axes):
        for one in axes.flat:
            one.tick_params(labelsize=8)
            one.grid(color="0.92")
            one.set_axisbelow(True)
        yield ((row, *pair) for row, pair in zip(axes, found, strict=True))


def _ranks(size: int) -> np.ndarray:
    """The places, from 0, of the lines that are drawn: all, or LINES of them from the first to the last."""
    return np.unique(np.linspace(0, size - 1, min(size, LINES)).round().astype(int))


def _median(values: np.ndarray, live: np.ndarray) -> np.ndarray:
    """(T, k) the median of (T, B, k) over the samples that are live (T, B); NaN where none is."""
    result = np.full((values.shape[0], values.shape[2]), np.nan)
    for row, alive, out in zip(values, live, result, strict=True):
        if alive.any():
            out[:] = np.median(row[alive], axis=0)
    return result


def _running(chain: StepChain, lengths: np.ndarray) -> np.ndarray:
    """(T, B, S) the mean of the stretches of a sample's first 1, 2, … steps of its walk, the directions in
    the order of the last ones; NaN beyond the sample's end."""
    place, found = places(chain, lengths), stretches(chain, chain.size)
    result = np.full(found.shape, np.nan)
    for sample, length in enumerate(lengths):
        own = place[:, sample] >= 0
        walked = found[own, sample][np.argsort(place[own, sample])]
        means = np.cumsum(walked, axis=0) / np.arange(1, length + 1)[:, None]
        means[np.isneginf(means)] = np.nan
        if length:
            means = means[:, np.argsort(-means[-1])]
        result[:length, sample] = means
    return result


def _draw_ranks(axes: Any, x: np.ndarray, lines: np.ndarray, ranks: np.ndarray, size: int, what: str) -> None:
    """A line a rank, from the first to the last in the colours of a bar beside."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    colours, scale = colormaps["viridis"], Normalize(1, max(2, size))
    marker = "." if len(x) == 1 else ""
    for rank, line in zip(ranks[::-1], lines.T[::-1], strict=True):
        axes.plot(x, line, marker=marker, color=colours(scale(rank + 1)), linewidth=1.0)
    if size > 1:
        bar = axes.figure.colorbar(ScalarMappable(scale, colours), ax=axes, pad=0.01, aspect=30)
        bar.set_label(what, fontsize=8)
        bar.ax.tick_params(labelsize=7)
        bar.locator.set_params(integer=True)
        bar.ax.invert_yaxis()


def _decades(axes: Any) -> None:
    """Label an axis of decimal logarithms by the numbers themselves, or where it is long by powers of ten."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

    bottom, top = axes.get_ylim()
    if top - bottom >= 3:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"$10^{{{value:.0f}}}$"))
        return
    digits = (1, 2, 5) if top - bottom > 1 else range(1, 10)
    decades = range(math.floor(bottom), math.ceil(top) + 1)
    marks = [math.log10(digit) + decade for decade in decades for digit in digits]
    axes.yaxis.set_major_locator(FixedLocator([mark for mark in marks if bottom <= mark <= top]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{10**value:.1g}"))


def _times(chain: StepChain) -> np.ndarray:
    """(T,) the time steps."""
    return chain.first + np.arange(chain.steps)


def _of_samples(chain: StepChain) -> str:
    return "" if chain.batch == 1 else f", median of {chain.batch} samples"
