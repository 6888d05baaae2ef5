"""Losses against PyTorch, and what they refuse."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bppsa_cupy as bp


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


def test_mse_loss_equals_pytorch(rng):
    output, target = rng.standard_normal((2, 4, 3))
    loss, gradient = bp.mse_loss(output, target)
    theirs = torch.tensor(output, requires_grad=True)
    expected = torch.nn.functional.mse_loss(theirs, torch.tensor(target))
    expected.backward()
    np.testing.assert_allclose(float(loss), expected.item(), rtol=1e-14)
    np.testing.assert_allclose(gradient, theirs.grad, rtol=1e-13)
