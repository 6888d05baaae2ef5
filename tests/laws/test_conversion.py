"""Input of another kind is converted where nothing is lost, which is said once."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bppsa_cupy as bp
from bppsa_cupy import conversion

IMAGES = np.arange(2 * 16, dtype=np.uint8).reshape(2, 1, 4, 4)


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    monkeypatch.setattr(conversion, "_said", set())


def net(dtype="float32", device="host"):
    return bp.Sequential([bp.Flatten(), bp.Linear(16, 3)], (1, 4, 4), dtype=dtype, device=device)


def once(call, message):
    """What a call gives, which warns of `message` the first time, here, and no second time."""
    with pytest.warns(RuntimeWarning, match=message) as caught:
        call()
    assert [w.filename for w in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return call()


@pytest.mark.parametrize("kind", ["f8", "u1", "i8", "f2", "?"])
def test_values_that_a_float32_holds_are_taken(kind):
    x = (IMAGES > 9).astype(kind) if kind == "?" else IMAGES.astype(kind)
    expected = net()(x.astype("f4"))
    y = once(lambda: net()(x), f"the network converted input from {x.dtype} to float32")
    assert np.array_equal(y, expected)


def test_lists_take_the_dtype_of_the_network():
    x = np.random.default_rng(1).standard_normal((2, 1, 4, 4))
    for dtype in ("float32", "float64"):
        assert np.array_equal(net(dtype)(x.tolist()), net(dtype)(x.astype(dtype)))
    assert np.array_equal(net()(IMAGES.tolist()), net()(IMAGES.astype("f4")))
    with pytest.raises(bp.ShapeError, match="of float64 with values that float32 cannot represent"):
        net()(np.full((1, 1, 4, 4), 1e300).tolist())
    with pytest.raises(bp.ShapeError, match="int64 with values that float32 cannot"):
        net()(np.full((1, 1, 4, 4), 2**24 + 1).tolist())


def test_tensors_that_track_gradients_are_detached():
    x = torch.rand(2, 1, 4, 4, requires_grad=True)
    y = once(lambda: net()(x), r"a Tensor that tracks gradients.*as with tensor.detach\(\)")
    assert np.array_equal(y, net()(x.detach()))


@given(st.lists(st.floats(width=64, allow_subnormal=True), min_size=1, max_size=5))
def test_a_conversion_changes_no_value(values):
    array = np.array(values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with np.errstate(all="ignore"):
            exact = np.array_equal(array.astype("f4").astype("f8"), array, equal_nan=True)
        warnings.simplefilter("error", np.exceptions.ComplexWarning)
        assert conversion.of_dtype("a", "b", array, np.dtype("c16"), "c").dtype == "c16"
        try:
            converted = conversion.of_dtype("a", "b", array, np.dtype("f4"), "c")
        except bp.ShapeError:
            assert not exact
        else:
            assert exact and converted.dtype == "f4"
            assert np.array_equal(converted.astype("f8"), array, equal_nan=True)
