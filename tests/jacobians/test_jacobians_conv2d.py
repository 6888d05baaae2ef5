"""The convolution's pattern and map: every valid tap and no other."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bppsa_cupy.geometry import Conv2dGeometry
from bppsa_cupy.jacobians.conv2d import Conv2dJacobian

pairs = lambda low, high: st.tuples(st.integers(low, high), st.integers(low, high))  # noqa: E731


@st.composite
def geometries(draw):
    groups = draw(st.integers(1, 3))
    kernel, dilation, padding = draw(pairs(1, 3)), draw(pairs(1, 2)), draw(pairs(0, 2))
    least = [max(1, d * (k - 1) + 1 - 2 * p) for k, d, p in zip(kernel, dilation, padding, strict=True)]
    return Conv2dGeometry(
        in_channels=groups * draw(st.integers(1, 2)),
        in_size=tuple(draw(st.integers(low, low + 4)) for low in least),
        out_channels=groups * draw(st.integers(1, 3)), kernel_size=kernel, stride=draw(pairs(1, 3)),
        padding=padding, padding_end=padding, dilation=dilation, groups=groups,
    )  # fmt: skip


def weight_shape(geometry):
    return geometry.out_channels, geometry.in_channels // geometry.groups, *geometry.kernel_size


def dense_jacobian(geometry, weight):
    """(d_in, d_out) by PyTorch: the image of each unit input, float64."""
    size = geometry.in_channels * geometry.in_size[0] * geometry.in_size[1]
    units = torch.eye(size, dtype=torch.float64).reshape(size, geometry.in_channels, *geometry.in_size)
    sizes = geometry.stride, geometry.padding, geometry.dilation, geometry.groups
    outputs = torch.nn.functional.conv2d(units, torch.from_numpy(weight), None, *sizes)
    return outputs.reshape(size, -1).numpy()


@settings(max_examples=100)
@given(geometries())
def test_pattern_is_the_nonzeros_of_weights_of_one(geometry):
    pattern = Conv2dJacobian(geometry).pattern
    expected = dense_jacobian(geometry, np.ones(weight_shape(geometry)))
    assert pattern.shape == expected.shape
    np.testing.assert_array_equal(pattern.to_scipy().toarray(), expected)


@settings(max_examples=100)
@given(geometries(), st.integers(0, 2**32), st.sampled_from([0.0, 0.03, 0.5, 1.0]))
def test_map_names_the_weight_of_each_entry(geometry, seed, density):
    mask = np.random.default_rng(seed).random(weight_shape(geometry)) < density
    jacobian = Conv2dJacobian(geometry, mask)
    # Weights that are all different tell which one an entry shows.
    weight = (np.arange(mask.size).reshape(mask.shape) + 1.0) * mask
    pattern, positions = jacobian.entries
    expected = dense_jacobian(geometry, weight)
    np.testing.assert_array_equal(pattern.to_scipy(weight.reshape(-1)[positions]).toarray(), expected)
    assert pattern.nnz == np.count_nonzero(expected)
