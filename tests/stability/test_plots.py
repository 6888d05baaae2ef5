"""Plots draw the numbers of the results, on axes of the caller."""

import numpy as np
import pytest

import bppsa_cupy as bp

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

JACOBIANS = np.random.default_rng(0).standard_normal((40, 3, 4, 4))


def run_linear_map(size):
    weight = np.random.default_rng(size).standard_normal((size, size))
    return bp.lyapunov_exponents(lambda h: (h, weight), h0=np.ones(size), steps=50)


def lines_of(axes, count):
    return [np.array(line.get_data()) for line in axes.lines if len(line.get_xdata()) == count]


def test_plots_draw_the_numbers():
    figure, axes = pyplot.subplots(1, 4)
    runs = run_linear_map(3), run_linear_map(5)
    assert bp.plot_spectrum(*runs, axes=axes[0], labels=["3", "5"]) is axes[0]
    for result in runs:
        size = result.size
        ((place, values),) = lines_of(axes[0], size)
        np.testing.assert_array_equal(place, np.arange(1, size + 1) / size)
        np.testing.assert_array_equal(values, result.exponents)
    runs[0].plot(axes[1])
    np.testing.assert_allclose([v[1] for v in lines_of(axes[1], 50)], runs[0].history.T[::-1])
    bp.plot_singular_values(JACOBIANS, axes=axes[2])
    drawn = [values for _, values in lines_of(axes[2], 40)]
    np.testing.assert_allclose(drawn, np.median(bp.singular_values(JACOBIANS), axis=1).T[::-1])
    values = np.linalg.eigvals(JACOBIANS[:2, 0])
    bp.plot_eigenvalues(values, axes=axes[3])
    np.testing.assert_array_equal([x + 1j * y for x, y in lines_of(axes[3], 4)], values)
    pyplot.close(figure)
