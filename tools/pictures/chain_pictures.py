"""Pictures of step Jacobians over time: singular values, how gradients go back, Lyapunov exponents."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.errors import JacobianFileError
from bppsa_cupy.records.plots import LINES, middle_of, plot_history, plot_singular_values, plot_spectrum
from bppsa_cupy.records.records import JacobianRecords, StepChain, as_chain
from bppsa_cupy.records.spectra import chain_exponents, log_gradient_norms
from bppsa_cupy.tools.pictures.picture_file import picture

#: Most chains of a picture.
CHAINS = 8
WIDTH, HEIGHT = 7.5, 2.9


def picture_spectrum(chains: Sequence[JacobianRecords], path: Path) -> None:
    """Singular values of every step: the median over the samples that have the step."""
    with _panels(chains, path) as panels:
        for (axes,), chain in panels:
            draw_spectrum(axes, chain)


def draw_spectrum(axes: Any, chain: StepChain) -> None:
    """The same of one chain."""
    plot_singular_values(chain.records, axes=axes)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_title(f"{chain.label}{_of_samples(chain)}", fontsize=10)


def picture_norms(chains: Sequence[JacobianRecords], path: Path) -> None:
    """Norms of gradients with respect to the states of all steps: of the one that grows most on its way back
    from the end of each sample."""
    with _panels(chains, path) as panels:
        for (axes,), chain in panels:
            draw_norms(axes, chain)


def draw_norms(axes: Any, chain: StepChain) -> None:
    """The same of one chain."""
    logs = log_gradient_norms(chain.records) / math.log(10)
    logs[~chain.live | np.isneginf(logs)] = np.nan
    times = _times(chain)
    marker = "." if chain.steps == 1 else ""
    if chain.batch > 1:
        shown = "each sample" if chain.batch <= LINES else f"{LINES} samples"
        each = axes.plot(times, logs[:, :LINES], marker=marker, color="0.7", linewidth=0.7)
        each[0].set_label(shown)
    if np.ptp(chain.lengths) == 0:  # else the median jumps where samples end
        middle = middle_of(logs.T)
        label = "median of the samples" if chain.batch > 1 else "the sample"
        axes.plot(times, middle, marker=marker, color="C0", label=label)
    _draw_limits(axes, times[0])
    _decades(axes)
    axes.xaxis.get_major_locator().set_params(integer=True)
    end = f"step {times[0]}" if chain.reverse else "a sample's last step"
    axes.set(xlabel="time step $t$", ylabel="norm of the gradient by s$_t$")
    axes.set_title(f"{chain.label}: ‖∂s/∂s$_t$‖, s after {end}", fontsize=10)
    axes.legend(fontsize=8)


def _draw_limits(axes: Any, first: int) -> None:
    """The ends of float32's range that lie inside the panel."""
    bottom, top = axes.get_ylim()
    for limit in (np.finfo(np.float32).tiny, np.finfo(np.float32).max):
        height = math.log10(limit)
        if bottom < height < top:
            axes.axhline(height, color="0.35", linestyle=":", linewidth=0.9)
            axes.text(first, height, " end of float32's normal range", fontsize=8, va="bottom")


def picture_lyapunov(chains: Sequence[JacobianRecords], path: Path) -> None:
    """Exponents as their averages settle along the walk, and those of the whole walk by rank."""
    with _panels(chains, path, (2.2, 1)) as panels:
        for (running, final), chain in panels:
            draw_running(running, chain)
            draw_exponents(final, chain)


def draw_running(axes: Any, chain: StepChain) -> None:
    """Exponents of one chain as their averages settle."""
    plot_history(chain.records, axes=axes)
    largest = chain_exponents(chain.records)[:, 0]
    largest = largest[~np.isneginf(largest)]
    first = float(np.median(largest)) if largest.size else -math.inf
    axes.set_title(f"{chain.label}{_of_samples(chain)}: λ$_1$ = ${first:.3f}$ per step", fontsize=10)
    axes.xaxis.get_major_locator().set_params(integer=True)


def draw_exponents(axes: Any, chain: StepChain) -> None:
    """Exponents of one chain, by rank."""
    plot_spectrum(chain.records, axes=axes)


@contextmanager
def _panels(
    chains: Sequence[JacobianRecords], path: Path, widths: Sequence[float] = (1,)
) -> Iterator[Iterator[tuple[Any, StepChain]]]:
    """Axes and chain of each row of a picture, which is written at the block's end."""
    if not 1 <= len(chains) <= CHAINS:
        raise JacobianFileError(
            f"there are {len(chains)} chains of steps of recurrent layers: a picture takes 1 to {CHAINS}, "
            "choose some with --layer, --inner or --direction"
        )
    rows = [as_chain("a picture", chain) for chain in chains]
    size = WIDTH, HEIGHT * len(chains) + 0.2
    options = {"figsize": size, "squeeze": False, "layout": "constrained", "width_ratios": list(widths)}
    with picture(path, len(chains), len(widths), save={"dpi": 150}, **options) as (_, axes):
        for panel in axes.flat:
            panel.tick_params(labelsize=8)
            panel.grid(color="0.92")
            panel.set_axisbelow(True)
        yield zip(axes, rows, strict=True)


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
