"""Losses: the mean over the batch, and its gradient with respect to the network's output."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_integer, as_number, as_plain_array
from bppsa_cupy.data.dataset import IGNORED, counted_labels
from bppsa_cupy.devices import Array, Device, device_of
from bppsa_cupy.errors import ArgumentError, LabelError, ShapeError
from bppsa_cupy.raw_kernels import KERNELS


def cross_entropy(
    scores: Array,
    labels: Any,
    *,
    lengths: Any = None,
    ignore_index: int = IGNORED,
    label_smoothing: float = 0.0,
    counted: int | None = None,
    device: Device | None = None,
) -> tuple[Array, Array]:
    """Return the softmax cross entropy, averaged over the labels, and its gradient.

    Parameters
    ----------
    scores : array, (B, classes) or (B, T, classes)
        Unnormalised scores (logits), float32 or float64, on any device. With three axes, every time step has
        a label.
    labels : array of int, (B,) or (B, T)
        Class indices, from 0 to classes - 1. Other dtypes are converted, with one warning, if no value
        changes.
    lengths : array of int, (B,), optional
        Number of valid steps of each sample, from 1 to T. Later steps are ignored.
    ignore_index : int, default: -100
        Labels with this value are ignored, as in PyTorch.
    label_smoothing : float, default: 0.0
        Share of each target that is spread evenly over all classes, from 0 to 1 (Szegedy et al. 2016).
    counted : int, optional
        Number of labels to divide by, if the scores are only a part of a batch. Default: the number of labels
        that are not ignored.
    device : Device, optional
        The device that computes. Default: the device of the scores.

    Returns
    -------
    loss : array, ()
        The loss, on the device of the scores. `float(loss)` waits for it.
    gradient : array
        The gradient with respect to the scores, in the same shape, with 0 for ignored labels.

    Raises
    ------
    ShapeError
        If shapes or dtypes do not fit.
    LabelError
        If a label is out of range, or all are ignored.
    ArgumentError
        If `label_smoothing` is out of range.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> loss, gradient = bp.cross_entropy(np.zeros((1, 2)), [0])
    >>> round(float(loss), 4), gradient.tolist()
    (0.6931, [[-0.5, 0.5]])
    """
    check_smoothing(label_smoothing)
    device = device_of(scores) if device is None else device
    scores = device.asarray(scores)
    if scores.ndim not in (2, 3) or 0 in scores.shape:
        raise ShapeError(
            f"cross_entropy got scores of shape {tuple(scores.shape)}: pass (B, classes) or (B, T, classes)"
        )
    *shape, classes = scores.shape
    targets, real = checked_targets(labels, tuple(shape), classes, lengths, ignore_index, counted is None)
    if counted is not None:
        real = as_integer("cross_entropy", "counted", counted, max(real, 1), error=LabelError)
    count = device.empty((1,), scores.dtype)
    count[...] = real
    return mean_cross_entropy(device, scores, device.asarray(targets), count, label_smoothing)


def checked_targets(
    labels: Any,
    shape: tuple[int, ...],
    classes: int,
    lengths: Any = None,
    ignore_index: int = IGNORED,
    is_complete: bool = True,
) -> tuple[np.ndarray, int]:
    """Return labels as the kernel reads them, int64 with -1 for ignored ones, and how many count.

    Raises the label errors of `cross_entropy`. Only a `is_complete` batch needs a label that counts.
    """
    array = as_plain_array("cross_entropy", "labels", labels)
    if array.shape != shape:
        raise ShapeError(
            f"cross_entropy got labels of {array.dtype} and shape {array.shape}: pass integers of shape "
            f"{shape}"
        )
    if array.dtype.kind not in "iu":
        raise ShapeError(f"cross_entropy got labels of {array.dtype}: pass labels.astype(int)")
    ignored = as_integer("cross_entropy", "ignore_index", ignore_index)
    # A negative one is large without its sign.
    unsigned = array.view(array.dtype.str.replace("i", "u"))
    if lengths is None and not 0 <= ignored < classes and np.maximum.reduce(unsigned, None) < classes:
        return array.astype(np.int64, copy=False), array.size
    counted = counted_labels(array, lengths, ignored)
    wrong = np.argwhere(counted & ((array < 0) | (array >= classes)))
    if len(wrong):
        sample = ", step ".join(map(str, wrong[0].tolist()))
        raise LabelError(
            f"label {int(array[tuple(wrong[0])])} of sample {sample} is out of range: "
            f"pass labels from 0 to {classes - 1}"
        )
    if is_complete and not counted.any():
        raise LabelError("every label is ignored: pass at least one label that is not ignore_index")
    return np.where(counted, array, -1).astype(np.int64), int(np.count_nonzero(counted))


def mean_cross_entropy(
    device: Device, scores: Array, targets: Array, count: Array, smoothing: float
) -> tuple[Array, Array]:
    """`cross_entropy` of arrays on the device, without reads on the host.

    Parameters
    ----------
    device : Device
        The device of the arrays.
    scores : array, (..., classes)
        float32 or float64.
    targets : array of int64
        Labels in the shape of the scores without the classes; -1 for ignored labels.
    count : array, (1,)
        Number of labels that count, in the dtype of the scores.
    smoothing : float
        See `cross_entropy`.
    """
    *_, classes = scores.shape
    rows = scores.size // classes
    launch = _bind_cross_entropy(device, scores.dtype, rows, classes, smoothing)
    losses = device.empty((rows,), scores.dtype)
    gradient = device.empty(scores.shape, scores.dtype)
    mean = device.empty((), scores.dtype)
    with device.naming_memory:
        launch(scores, targets, count, losses, gradient)
        losses.sum(out=mean)
        device.xp.divide(mean, count.reshape(()), out=mean)
    return mean, gradient


def mse_loss(output: Array, target: Any, *, device: Device | None = None) -> tuple[Array, Array]:
    """Return the mean squared error over all elements, and its gradient with respect to the output.

    Parameters
    ----------
    output, target : array
        Two arrays of equal shape.
    device : Device, optional
        The device that computes. Default: the device of the output.

    Returns
    -------
    loss : array, ()
        The loss, on the device of the output. `float(loss)` waits for it.
    gradient : array
        The gradient with respect to the output, in the same shape.

    Raises
    ------
    ShapeError
        If the shapes differ.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> loss, gradient = bp.mse_loss(np.array([[1.0, 3.0]]), np.array([[1.0, 1.0]]))
    >>> float(loss), gradient.tolist()
    (2.0, [[0.0, 2.0]])
    """
    device = device_of(output) if device is None else device
    output = device.asarray(output)
    if output.dtype not in (np.float32, np.float64):
        raise ShapeError(f"mse_loss got an output of {output.dtype}: pass float32 or float64")
    wanted = device.asarray(target, dtype=output.dtype)
    if wanted.shape != output.shape:
        raise ShapeError(
            f"mse_loss got a target of shape {tuple(wanted.shape)}: pass a target with the shape of the "
            f"output, {tuple(output.shape)}"
        )
    if not output.size:
        raise ShapeError(f"mse_loss got an output of shape {tuple(output.shape)}: pass at least one element")
    with device.naming_memory:
        difference = output - wanted
        return (difference * difference).mean(), difference * output.dtype.type(2 / output.size)


def check_smoothing(label_smoothing: Any) -> None:
    """Raise ArgumentError unless `label_smoothing` is from 0 to 1."""
    takes = "a number from 0 to 1"
    as_number(
        "cross_entropy", "label_smoothing", label_smoothing, lambda v: 0 <= v <= 1, takes, error=ArgumentError
    )


@lru_cache(maxsize=64)
def _bind_cross_entropy(
    device: Device, dtype: np.dtype, rows: int, classes: int, smoothing: float
) -> Callable[..., None]:
    """The kernel's launch on scores, labels, count, losses and gradient. Binding it costs as much as running
    it."""
    reals, labels = (device.xp.empty(0, each) for each in (dtype, np.int64))
    names = ("scores", "labels", "counted", "losses", "gradient")
    return device.bind_open(
        KERNELS["cross_entropy"], names, reals, labels, reals, reals, reals, rows, classes, smoothing
    )
