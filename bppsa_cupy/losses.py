"""Losses: the mean over the batch, and its gradient by the network's output."""

from __future__ import annotations

from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device, device_of
from bppsa_cupy.errors import LabelError, ShapeError
from bppsa_cupy.raw_kernels import KERNELS


def cross_entropy(scores: Array, labels: Any, *, device: Device | None = None) -> tuple[Array, Array]:
    """Softmax cross entropy, mean over the batch, and its gradient.

    scores  (B, classes) float32 or float64, on any device
    labels  (B,) integers, 0 <= label < classes; checked on the host before they are uploaded
    Returns the loss as an array of no dimensions on the scores' device (`float(loss)` waits for it)
    and the gradient (B, classes) by the scores. Raises ShapeError, LabelError.
    """
    device = device or device_of(scores)
    scores = device.asarray(scores)
    if scores.ndim != 2 or 0 in scores.shape:
        raise ShapeError(f"cross_entropy got scores of shape {tuple(scores.shape)}: it takes (B, classes)")
    batch, classes = scores.shape
    checked = check_labels(labels, batch, classes)
    losses = device.empty((batch,), scores.dtype)
    gradient = device.empty((batch, classes), scores.dtype)
    device.launch(
        KERNELS["cross_entropy"],
        scores,
        device.asarray(checked),
        losses,
        gradient,
        batch,
        classes,
    )
    return losses.mean(), gradient


def mse_loss(output: Array, target: Any, *, device: Device | None = None) -> tuple[Array, Array]:
    """Mean squared error over all elements, and its gradient by the output.

    output, target  of equal shape. Returns as `cross_entropy`. Raises ShapeError.
    """
    device = device or device_of(output)
    output = device.asarray(output)
    if output.dtype.kind != "f":
        raise ShapeError(f"mse_loss got an output of {output.dtype}: it takes float32 or float64")
    wanted = device.asarray(target, dtype=output.dtype)
    if wanted.shape != output.shape:
        raise ShapeError(
            f"mse_loss got a target of shape {tuple(wanted.shape)}: the output has {tuple(output.shape)}"
        )
    if not output.size:
        raise ShapeError(f"mse_loss got an output of shape {tuple(output.shape)}: it has no element")
    difference = output - wanted
    return (difference * difference).mean(), difference * output.dtype.type(2 / output.size)


def check_labels(labels: Any, batch: int, classes: int) -> np.ndarray:
    """`labels` as (batch,) int64 on the host. Raises ShapeError or LabelError naming the first bad one."""
    array = np.asarray(labels.get() if hasattr(labels, "get") else labels)
    if array.shape != (batch,) or array.dtype.kind not in "iu":
        raise ShapeError(
            f"labels are {array.dtype} of shape {array.shape}: a batch of {batch} takes integers of "
            f"shape ({batch},)"
        )
    wrong = np.flatnonzero((array < 0) | (array >= classes))
    if wrong.size:
        first = int(wrong[0])
        raise LabelError(
            f"label {int(array[first])} of sample {first} is out of range: the network has {classes} "
            f"classes, labels run from 0 to {classes - 1}"
        )
    return array.astype(np.int64)
