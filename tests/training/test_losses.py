"""Losses against PyTorch, and what they refuse."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bppsa_cupy as bp


@given(st.integers(1, 9), st.integers(1, 12), st.integers(0, 2**31))
def test_cross_entropy_equals_pytorch(batch, classes, seed):
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((batch, classes)) * 10
    labels = rng.integers(0, classes, batch)
    loss, gradient = bp.cross_entropy(scores, labels)
    theirs = torch.tensor(scores, requires_grad=True)
    expected = torch.nn.functional.cross_entropy(theirs, torch.tensor(labels))
    expected.backward()
    np.testing.assert_allclose(float(loss), expected.item(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(gradient, theirs.grad, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("lengths", [None, [4, 3, 1]])
def test_cross_entropy_on_every_device(device, dtype, smoothing, lengths, rng):
    shape = (3,) if lengths is None else (3, 4)
    scores, labels = rng.standard_normal((*shape, 5)).astype(dtype), rng.integers(0, 5, shape)
    if lengths is not None:
        labels[1, 2] = -100
    given_scores = device.asarray(scores)
    loss, gradient = bp.cross_entropy(
        given_scores, labels, lengths=lengths, label_smoothing=smoothing, device=device
    )
    if lengths is not None:
        labels[1, 3] = labels[2, 1:] = -100
    theirs = torch.tensor(scores.astype(np.float64), requires_grad=True)
    flat, targets = theirs.reshape(-1, 5), torch.tensor(labels.ravel())
    expected = torch.nn.functional.cross_entropy(flat, targets, label_smoothing=smoothing)
    expected.backward()
    np.testing.assert_allclose(float(loss), expected.item(), rtol=10 * np.finfo(dtype).eps)
    assert device.to_host(gradient).dtype == dtype
    np.testing.assert_allclose(device.to_host(gradient), theirs.grad, atol=10 * np.finfo(dtype).eps)


@given(
    st.integers(1, 5),
    st.integers(1, 9),
    st.integers(1, 6),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_a_loss_at_every_step_equals_pytorch(batch, steps, classes, ragged, ignoring, seed):
    """PyTorch's mean over labels that are not -100, whatever stands at padded steps."""
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((batch, steps, classes)) * 10
    labels = rng.integers(0, classes, (batch, steps))
    expected_labels, ignored = labels.copy(), -100
    if ignoring:
        ignored = int(rng.integers(0, classes))
        labels[rng.integers(0, batch), :] = ignored
        labels[0, 0] = (ignored + 1) % max(classes, 2)
        scores = scores if classes > 1 else np.repeat(scores, 2, axis=2)
        expected_labels = np.where(labels == ignored, -100, labels)
    lengths = rng.integers(1, steps + 1, batch) if ragged else None
    if lengths is not None:
        padded = np.arange(steps) >= lengths[:, None]
        expected_labels[padded], labels[padded] = -100, 10**6
        given_scores = np.where(padded[..., None], np.nan, scores)
    else:
        given_scores = scores
    loss, gradient = bp.cross_entropy(given_scores, labels, lengths=lengths, ignore_index=ignored)
    theirs = torch.tensor(scores, requires_grad=True)
    expected = torch.nn.functional.cross_entropy(theirs.transpose(1, 2), torch.tensor(expected_labels))
    expected.backward()
    np.testing.assert_allclose(float(loss), expected.item(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(gradient, theirs.grad, rtol=1e-11, atol=1e-15)


@given(
    st.integers(1, 5), st.integers(1, 4), st.integers(1, 6), st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    st.integers(0, 2**31),
)  # fmt: skip
def test_label_smoothing_equals_pytorch(batch, steps, classes, smoothing, seed):
    rng = np.random.default_rng(seed)
    scores, labels = (
        rng.standard_normal((batch, steps, classes)) * 10,
        rng.integers(0, classes, (batch, steps)),
    )
    labels[rng.random(labels.shape) < 0.3] = -100
    labels[0, 0] = classes - 1
    loss, gradient = bp.cross_entropy(scores, labels, label_smoothing=smoothing)
    theirs = torch.tensor(scores, requires_grad=True)
    expected = torch.nn.functional.cross_entropy(
        theirs.transpose(1, 2), torch.tensor(labels), label_smoothing=smoothing
    )
    expected.backward()
    np.testing.assert_allclose(float(loss), expected.item(), rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(gradient, theirs.grad, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("smoothing", [-0.1, 1.1, np.nan, None])
def test_a_smoothing_not_from_0_to_1_is_refused(smoothing):
    with pytest.raises(bp.BppsaError, match=r"label_smoothing=.*: it takes a number from 0 to 1"):
        bp.cross_entropy(np.zeros((1, 2)), [0], label_smoothing=smoothing)


def test_large_scores_do_not_overflow(dtype):
    limit = np.finfo(dtype).max / 4
    loss, gradient = bp.cross_entropy(np.array([[limit, -limit]], dtype), [0])
    assert float(loss) == 0 and np.array_equal(gradient, [[0, 0]])


def test_mse_loss_equals_pytorch(rng):
    output, target = rng.standard_normal((2, 4, 3))
    loss, gradient = bp.mse_loss(output, target)
    theirs = torch.tensor(output, requires_grad=True)
    expected = torch.nn.functional.mse_loss(theirs, torch.tensor(target))
    expected.backward()
    np.testing.assert_allclose(float(loss), expected.item(), rtol=1e-14)
    np.testing.assert_allclose(gradient, theirs.grad, rtol=1e-13)


@pytest.mark.parametrize(
    "labels, error, message",
    [
        ([0, 3], bp.LabelError, "label 3 of sample 1 is out of range: the network has 3 classes"),
        ([-1, 0], bp.LabelError, "label -1 of sample 0"),
        ([0], bp.ShapeError, "a batch of 2 takes integers of shape"),
        ([0.0, 1.5], bp.ShapeError, "takes labels of int64 and got float64, of which int64 cannot hold"),
        (["0", "1"], bp.ShapeError, "cross_entropy got labels of <U1: it takes numbers"),
        ([[0], [0, 1]], bp.ShapeError, "cross_entropy got labels that is no array"),
        (None, bp.ShapeError, "cross_entropy got labels of object"),
        (np.ma.masked_array([0, 1], [1, 0]), bp.ShapeError, "labels as a masked array"),
    ],
)
def test_labels_that_are_refused(labels, error, message):
    with pytest.raises(error, match=message):
        bp.cross_entropy(np.zeros((2, 3)), labels)


@pytest.mark.parametrize(
    "labels, options, error, message",
    [
        ([[0, 1], [2, 3]], {}, bp.LabelError, "label 3 of sample 1 at step 1 is out of range"),
        ([[0, 1], [2, -1]], {"lengths": [2, 2]}, bp.LabelError, "label -1 of sample 1 at step 1"),
        ([0, 1], {}, bp.ShapeError, r"shape \(2,\): a batch of 2 takes integers of shape \(2, 2\)"),
        ([[-100, -100]] * 2, {}, bp.LabelError, "every label is ignored"),
        (
            [[0, 1]] * 2,
            {"lengths": [2, 3]},
            bp.ShapeError,
            "sample 1 has length 3: a length is from 1 to T = 2",
        ),
        ([[0, 1]] * 2, {"lengths": [2]}, bp.ShapeError, "a batch of 2 takes integers of shape"),
        ([[0, 1]] * 2, {"lengths": np.ma.masked_array([2, 1], [1, 0])}, bp.ShapeError, "lengths as a masked"),
    ],
)
def test_labels_by_step_that_are_refused(labels, options, error, message):
    with pytest.raises(error, match=message):
        bp.cross_entropy(np.zeros((2, 2, 3)), labels, **options)


def test_lengths_take_labels_by_step():
    with pytest.raises(bp.ShapeError, match="lengths were given with one label a sample"):
        bp.cross_entropy(np.zeros((2, 3)), [0, 1], lengths=[1, 1])


@pytest.mark.parametrize("shape", [(3,), (0, 3), (2, 0), (2, 0, 3), (1, 1, 1, 1)])
def test_scores_that_are_refused(shape):
    with pytest.raises(bp.ShapeError):
        bp.cross_entropy(np.zeros(shape), np.zeros(shape[:1], int))


def test_scores_come_as_lists_and_by_dlpack():
    loss, gradient = bp.cross_entropy([[0.0, 0.0]], [1])
    assert float(loss) == pytest.approx(np.log(2)) and np.allclose(gradient, [[0.5, -0.5]])
    _, by_dlpack = bp.cross_entropy(torch.zeros(1, 2, dtype=torch.float64), [1])
    assert np.array_equal(by_dlpack, gradient)


@pytest.mark.parametrize(
    "output, target, message",
    [
        (np.zeros((2, 3)), np.zeros((2, 2)), r"\(2, 2\).*\(2, 3\)"),
        (np.zeros((0, 3)), np.zeros((0, 3)), r"\(0, 3\)"),
        (np.zeros((1, 2)), np.array([["1", "2"]]), "<U1"),
        (np.zeros((1, 2)), np.array([[1, None]]), "object"),
        (np.zeros((1, 2)), np.ma.masked_array([[1.0, 2.0]], [[1, 0]]), "masked array"),
        (np.array([[1, 2]]), [[0.5, 0.5]], "int64.*float32"),
    ],
)
def test_targets_that_are_refused(output, target, message):
    with pytest.raises(bp.ShapeError, match=message):
        bp.mse_loss(output, target)
