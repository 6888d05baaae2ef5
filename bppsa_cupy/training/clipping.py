"""Clipping of gradients, as PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_instance, as_number
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.network.layout import ALIGNMENT
from bppsa_cupy.network.parameters import ParameterSet

#: A power of two that float32 has, as has what the least factor is in parts of it.
TINY = 2.0**-64


def clip_grad_norm(gradients: ParameterSet, max_norm: float) -> Array:
    """Scale all gradients in place so that their common 2-norm is at most `max_norm`.

    Parameters
    ----------
    gradients : ParameterSet
        net.gradients.
    max_norm : float
        Above 0.

    Returns
    -------
    array, ()
        The norm before, float64, on the device.

    Raises
    ------
    BppsaError
        If `max_norm` is not above 0.
    DeviceError
        If the device has too little memory. Nothing is scaled.

    Notes
    -----
    The factor is min(1, max_norm / (norm + 1e-6)), as in PyTorch. NaN or infinity makes all gradients NaN, so
    that the optimizer skips the step. Ranks get the same bits as one process.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> net = bp.Sequential([bp.Linear(2, 1, bias=False)], (2,), dtype="float64", device="host")
    >>> net.gradients["0.weight"] = np.array([[3.0, 4.0]])
    >>> float(bp.clip_grad_norm(net.gradients, 1.0))
    5.0
    >>> net.gradients["0.weight"].round(4).tolist()
    [[0.6, 0.8]]
    """
    takes = "a network's gradients, net.gradients"
    as_instance("clip_grad_norm", "gradients", gradients, ParameterSet, takes, error=BppsaError)
    max_norm = check_max_norm(max_norm)
    ranks, flat, device = gradients.ranks, gradients.flat, gradients.device
    xp = device.xp
    with np.errstate(invalid="ignore"), device.naming_memory:
        largest = xp.abs(flat).max() if flat.size else xp.zeros((), flat.dtype)
        if ranks is not None:
            largest = ranks.of_all_ranks(largest).max()
        scale = largest + (largest == 0)
        # By unit and then over units: in an order that does not depend on which rank holds what.
        sums = xp.square(flat / scale).astype(np.float64)
        for _ in range((ALIGNMENT // flat.itemsize).bit_length() - 1):
            sums = sums[::2] + sums[1::2]
        if ranks is not None:
            sums = ranks.units_of_all_ranks(sums)
        norm = xp.sqrt(sums.sum()) * scale.astype(np.float64)
        factor = xp.minimum(max_norm / (norm + 1e-6), 1.0)
        if xp is not np:
            # CuPy takes a denormal factor for 0: a power of two, which rounds nothing, goes first.
            power = xp.where(factor < TINY, TINY, 1.0)
            flat *= power.astype(flat.dtype)
            factor = factor / power
        flat *= factor.astype(flat.dtype)
    return norm


def check_max_norm(max_norm: Any) -> float:
    """Return `max_norm` as a float. Raises BppsaError unless it is above 0."""
    takes = "a number above 0"
    return as_number("clip_grad_norm", "max_norm", max_norm, lambda norm: norm > 0, takes, error=BppsaError)
