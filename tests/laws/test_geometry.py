"""Windows at the edges of what fits, and of adaptive poolings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bppsa_cupy.errors import ShapeError
from bppsa_cupy.geometry import AdaptiveAxis, Pool2dGeometry


def pool(in_size, kernel, padding=0):
    return Pool2dGeometry(1, in_size, (kernel, kernel), (1, 1), (padding, padding))


@pytest.mark.parametrize(
    "in_size, kernel, out_size", [((1, 1), 1, (1, 1)), ((1, 4), 1, (1, 4)), ((2, 2), 2, (1, 1))]
)
def test_one_row_and_one_window_are_enough(in_size, kernel, out_size):
    assert pool(in_size, kernel).out_size == out_size


@pytest.mark.parametrize("in_size", [(0, 3), (3, 0)])
def test_a_window_of_padding_alone_does_not_fit(in_size):
    assert min(pool((1, 1), 2, 1).out_size) == 2
    with pytest.raises(ShapeError, match="a window must fit"):
        pool(in_size, 2, 1)


@pytest.mark.parametrize("in_size", [(1, 3), (3, 1)])
def test_a_window_larger_than_one_side_does_not_fit(in_size):
    with pytest.raises(ShapeError, match="a window must fit"):
        pool(in_size, 2)


@given(st.integers(1, 40), st.integers(1, 40))
def test_an_adaptive_window_has_no_more_taps_than_inputs_it_sees(inputs, outputs):
    """By PyTorch's bounds, floor(o I / O) and ceil((o + 1) I / O), in floats."""
    output = np.arange(outputs)
    seen = np.ceil((output + 1) * (inputs / outputs) - 1e-9) - np.floor(output * (inputs / outputs) + 1e-9)
    axis = AdaptiveAxis(inputs, outputs)
    assert axis.kernel == seen.max()
    np.testing.assert_array_equal(np.bincount(axis.taps().outputs, minlength=outputs), seen)
