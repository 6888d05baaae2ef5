"""Plots of exponents, singular values and eigenvalues on Matplotlib axes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.records.records import StepChain, as_chain
from bppsa_cupy.records.spectra import chain_exponents, places, singular_values, stretches

#: Most lines of a plot, and the orders of magnitude that a logarithmic axis shows at most.
LINES, DECADES = 32, 12


def plot_spectrum(*sources: Any, axes: Any = None, labels: Sequence[str] | None = None) -> Any:
    """Plot Lyapunov exponents λ_i against i / S, so that systems of different state sizes S can be compared.

    Parameters
    ----------
    *sources : LyapunovSpectrum, JacobianRecords, or ndarray (k,) or (B, k)
        Exponents, or the records of one inner layer and direction. For an array, S is taken to be k. Grey
        dots show the samples of a batch, and the line shows their median.
    axes : matplotlib.axes.Axes, optional
        The axes to draw in. New axes by default.
    labels : sequence of str, optional
        One legend entry per source.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> axes = bp.plot_spectrum(np.array([0.1, -0.3]), np.array([0.2, 0.0, -0.4]), labels=["S = 2", "S = 3"])
    >>> axes.get_xlabel()
    'i / S'
    """
    axes = axes_or_new(axes)
    for number, source in enumerate(sources):
        if hasattr(source, "history"):
            exponents, size = source.exponents, source.size
        elif isinstance(source, np.ndarray) and source.ndim < 3:
            exponents, size = source, source.shape[-1]
        else:
            exponents = chain_exponents(source)
            size = exponents.shape[-1]
        exponents = np.where(np.isneginf(exponents), np.nan, np.atleast_2d(exponents))
        place = np.arange(1, exponents.shape[1] + 1) / size
        if len(exponents) > 1:
            axes.plot(place, exponents.T, ".", color="0.7", markersize=3)
        label = labels[number] if labels is not None else None
        axes.plot(place, middle_of(exponents), "o-", color=f"C{number % 10}", markersize=3, label=label)
    axes.axhline(0, color="0.35", linestyle="--", linewidth=0.9)
    axes.set(xlabel="i / S", ylabel="Lyapunov exponent, 1 / step")
    if labels is not None:
        axes.legend()
    return axes


def plot_history(source: Any, *, axes: Any = None) -> Any:
    """Plot the running averages of Lyapunov exponents. For a batch, the median over the samples is plotted.

    Parameters
    ----------
    source : LyapunovSpectrum, JacobianRecords or array
        The exponents with their history, or the step Jacobians as in `bp.singular_values`.
    axes : matplotlib.axes.Axes, optional
        The axes to draw in. New axes by default.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> J = np.random.default_rng(0).standard_normal((50, 3, 3))
    >>> bp.plot_history(J).get_xlabel()
    'steps'
    """
    axes = axes_or_new(axes)
    if hasattr(source, "history"):
        steps, history = source.ends, source.history
        history = history[:, None] if history.ndim == 2 else history
    else:
        history = _running(as_chain("plot_history", source))
        steps = np.arange(1, len(history) + 1)
    lines = middle_of(np.where(np.isneginf(history), np.nan, history).swapaxes(0, 1))
    _plot_ranks(axes, steps, lines, "exponent no.")
    axes.axhline(0, color="0.35", linestyle="--", linewidth=0.9)
    axes.set(xlabel="steps", ylabel="mean log stretch per step")
    return axes


def plot_singular_values(records: Any, *, axes: Any = None) -> Any:
    """Plot the singular values of the Jacobian of every time step on a logarithmic axis.

    For a batch, the median over the samples is plotted.

    Parameters
    ----------
    records : JacobianRecords, or arrays
        The records of T steps of one inner layer and direction, or Jacobians (T, S, S) or (T, B, S, S).
    axes : matplotlib.axes.Axes, optional
        The axes to draw in. New axes by default.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> J = np.random.default_rng(0).standard_normal((50, 3, 3))
    >>> bp.plot_singular_values(J).get_yscale()
    'log'
    """
    axes = axes_or_new(axes)
    chain = as_chain("plot_singular_values", records)
    values = singular_values(chain.records)
    values[~chain.live] = np.nan
    lines = middle_of(values.swapaxes(0, 1))
    lines[~(lines > np.nanmax(lines, initial=0) * 10.0**-DECADES)] = np.nan
    _plot_ranks(axes, chain.first + np.arange(chain.steps), lines, "singular value no.")
    axes.set(yscale="log", xlabel="time step t", ylabel="singular value of ∂s$_t$/∂s$_{t-1}$")
    axes.axhline(1, color="0.35", linestyle="--", linewidth=0.9)
    return axes


def plot_eigenvalues(values: Any, *, axes: Any = None) -> Any:
    """Plot eigenvalues in the complex plane, with the unit circle.

    Parameters
    ----------
    values : ndarray of complex, or FixedPoints
        Eigenvalues in an array of any shape. Each row, along the last axis, has its own colour.
    axes : matplotlib.axes.Axes, optional
        The axes to draw in. New axes by default.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> bp.plot_eigenvalues(np.linalg.eigvals([[0.0, 1.0], [-0.5, 0.2]])).get_xlabel()
    'Re λ'
    """
    axes = axes_or_new(axes)
    rows = np.atleast_2d(np.asarray(getattr(values, "eigenvalues", values)))
    turn = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.cos(turn), np.sin(turn), color="0.35", linestyle="--", linewidth=0.9)
    for row in rows.reshape(-1, rows.shape[-1]):
        axes.plot(row.real, row.imag, ".")
    axes.set(xlabel="Re λ", ylabel="Im λ", aspect="equal")
    return axes


def axes_or_new(axes: Any) -> Any:
    """The axes, or those of a new figure. Raises BppsaError without Matplotlib."""
    if axes is not None:
        return axes
    if find_spec("matplotlib") is None:
        raise BppsaError("a plot needs matplotlib: install the extra 'plot'")
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1]


def middle_of(values: np.ndarray) -> np.ndarray:
    """The median over axis 0 of numbers that are not NaN; NaN where all are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmedian(values, axis=0))


def _running(chain: StepChain) -> np.ndarray:
    """(T, B, S) the mean of the stretches of a sample's first 1, 2, … steps of its walk, the directions in
    the order of the last ones; NaN beyond the sample's end."""
    place, stretched = places(chain), stretches(chain, chain.size)
    result = np.full(stretched.shape, np.nan)
    for sample, length in enumerate(chain.lengths):
        live = place[:, sample] >= 0
        walked = stretched[live, sample][np.argsort(place[live, sample])]
        means = np.cumsum(walked, axis=0) / np.arange(1, length + 1)[:, None]
        if length:
            result[:length, sample] = means[:, np.argsort(-means[-1])]
    return result


def _plot_ranks(axes: Any, x: np.ndarray, lines: np.ndarray, label: str) -> None:
    """A line per rank, from the first to the last in the colours of a bar beside the axes."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    size = lines.shape[1]
    ranks = np.unique(np.linspace(0, size - 1, min(size, LINES)).round().astype(int))
    colours, scale = colormaps["viridis"], Normalize(1, max(2, size))
    for rank in ranks[::-1]:
        marker = "." if len(x) == 1 else ""
        axes.plot(x, lines[:, rank], marker=marker, color=colours(scale(rank + 1)), linewidth=1.0)
    if size > 1:
        bar = axes.figure.colorbar(ScalarMappable(scale, colours), ax=axes, pad=0.01, aspect=30)
        bar.set_label(label, fontsize=8)
        bar.locator.set_params(integer=True)
        bar.ax.invert_yaxis()
