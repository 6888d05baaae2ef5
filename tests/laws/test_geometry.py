"""Windows of adaptive poolings."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bppsa_cupy.geometry import AdaptiveAxis


@given(st.integers(1, 40), st.integers(1, 40))
def test_an_adaptive_window_has_no_more_taps_than_inputs_it_sees(inputs, outputs):
    """By PyTorch's bounds, floor(o I / O) and ceil((o + 1) I / O), in floats."""
    output = np.arange(outputs)
    seen = np.ceil((output + 1) * (inputs / outputs) - 1e-9) - np.floor(output * (inputs / outputs) + 1e-9)
    axis = AdaptiveAxis(inputs, outputs)
    assert axis.kernel == seen.max()
    np.testing.assert_array_equal(np.bincount(axis.taps().outputs, minlength=outputs), seen)
