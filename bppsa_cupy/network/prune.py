"""Masks: pruning by magnitude (See et al. 2016), and regrowth by the gradient (Evci et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_choice, as_number
from bppsa_cupy.errors import PruneError
from bppsa_cupy.network.sequential import Sequential

SCOPES = ("layer", "global")
A_SHARE = "a number from 0 to 1, such as 0.97"


def prune(network: Sequential, fraction: float, scope: str = "layer") -> dict[str, np.ndarray]:
    """Prune the weights of smallest magnitude, and set masks that keep the pruned weights 0.

    Only weights of Conv2d and Linear layers are pruned.

    Parameters
    ----------
    network : Sequential
        The network to prune.
    fraction : float
        Share of the weights to prune, from 0 to 1. Weights that are already masked count towards this share
        and stay masked.
    scope : {"layer", "global"}, default: "layer"
        "layer" prunes this share of each layer's weights (class-uniform in See et al. 2016). "global" prunes
        this share of all weights, with one threshold for all layers (class-blind). A global threshold can
        remove all weights of a layer whose weights are small.

    Returns
    -------
    dict of str to numpy.ndarray
        The masks by parameter name, bool and read-only: True for remaining weights. Layers without pruned
        weights are left out.

    Raises
    ------
    PruneError
        If an argument is out of range, a weight is not finite, or no layer can be pruned. Nothing is pruned.

    Notes
    -----
    round(fraction n) of n weights are pruned. Magnitudes are compared in float32. If magnitudes are equal,
    weights with a lower index are pruned first. A plan made before the call no longer fits the network.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> net = bp.Sequential([bp.Linear(10, 10)], input_shape=(10,), device="host")
    >>> int(bp.prune(net, 0.9)["0.weight"].sum())
    10
    """
    fraction = as_number("prune", "fraction", fraction, lambda f: 0 <= f <= 1, A_SHARE, error=PruneError)
    as_choice("prune", "scope", scope, SCOPES, error=PruneError)
    present = {name: network.masks.get(name) for name in network.architecture.weighted}
    magnitudes = {}  # |w| in float32, flat; -1 where masked
    for name, mask in present.items():
        weights = np.asarray(network.device.to_host(network.parameters[name]))
        if not np.isfinite(weights).all():
            raise PruneError(f"{name} contains NaN or infinity: replace these values before pruning")
        magnitudes[name] = np.abs(weights.astype(np.float32)).ravel()
        if mask is not None:
            magnitudes[name][~mask.ravel()] = -1
    if not present:
        raise PruneError("the network has no Conv2d or Linear layer: there is nothing to prune")
    if scope == "layer":
        remaining = {name: _kept(values, fraction) for name, values in magnitudes.items()}
    else:
        ends = np.cumsum([values.size for values in magnitudes.values()])
        together = _kept(np.concatenate(list(magnitudes.values())), fraction)
        remaining = dict(zip(magnitudes, np.split(together, ends[:-1]), strict=True))
    masks = {
        name: remaining[name].reshape(network.parameters.layout.shapes[name])
        for name, mask in present.items()
        if mask is not None or not remaining[name].all()
    }
    network.set_masks(masks)
    return network.masks


def regrow(network: Sequential, gradients: Mapping[str, Any], fraction: float) -> dict[str, np.ndarray]:
    """Mask the smallest remaining weights, and unmask as many weights with the largest gradients.

    This is the update of algorithm 1 of RigL (Evci et al. 2020).

    Parameters
    ----------
    network : Sequential
        A network with masks.
    gradients : mapping of str to array
        For each weight array with a mask, its gradient of the same shape, masked elements included. Compute
        it after ``network.set_masks({})``, and set the masks again before this call.
    fraction : float
        Share of each layer's remaining weights to mask, from 0 to 1.

    Returns
    -------
    dict of str to numpy.ndarray
        The new masks. Each mask keeps as many weights as before.

    Raises
    ------
    PruneError
        If an argument is out of range, missing, not finite or of the wrong shape. Nothing changes.

    Notes
    -----
    round(fraction k) of k remaining weights are masked. Magnitudes are compared in float32. Among weights of
    equal magnitude, those with a lower index are masked first. Among weights with equal gradients, those with
    a lower index are unmasked first.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> net = bp.Sequential([bp.Linear(2, 1)], input_shape=(2,), device="host")
    >>> net.parameters["0.weight"] = np.array([[3.0, 1.0]])
    >>> before = bp.prune(net, 0.5)["0.weight"]
    >>> before.tolist(), bp.regrow(net, {"0.weight": [[0.0, 9.0]]}, 1.0)["0.weight"].tolist()
    ([[True, False]], [[False, True]])
    """
    fraction = as_number("regrow", "fraction", fraction, lambda f: 0 <= f <= 1, A_SHARE, error=PruneError)
    masks, host = network.masks, network.device.to_host
    changed = {}
    for name, mask in masks.items():
        if name not in gradients:
            raise PruneError(
                f"regrow needs the dense gradient of {name}, which is missing: compute it after "
                "net.set_masks({}), and set the masks again before regrow"
            )
        gradient = np.abs(np.asarray(host(gradients[name]), np.float32))
        if gradient.shape != mask.shape or not np.isfinite(gradient).all():
            fault = f"of shape {gradient.shape}" if gradient.shape != mask.shape else "with NaN or infinity"
            raise PruneError(
                f"regrow got a gradient {fault} for {name} of shape {mask.shape}: pass finite values of that "
                "shape"
            )
        weights = np.abs(np.asarray(host(network.parameters[name]), np.float32)).ravel()
        remaining = np.flatnonzero(mask)
        count = round(fraction * remaining.size)
        stay = np.sort(remaining[np.argsort(weights[remaining], kind="stable")[count:]])
        left = np.ones(mask.size, bool)
        left[stay] = False
        candidates = np.flatnonzero(left)
        grown = candidates[np.argsort(-gradient.ravel()[candidates], kind="stable")[:count]]
        new = ~left
        new[grown] = True
        changed[name] = new.reshape(mask.shape)
    network.set_masks(changed)
    return network.masks


def _kept(magnitudes: np.ndarray, fraction: float) -> np.ndarray:
    """The values that stay when the smallest `fraction` is pruned; values of -1 are always pruned."""
    count = round(fraction * magnitudes.size)
    mask = magnitudes >= 0
    if count:
        threshold = np.partition(magnitudes, count - 1)[count - 1]
        below = magnitudes < threshold
        mask &= ~below
        mask[np.flatnonzero(magnitudes == threshold)[: count - int(below.sum())]] = False
    return mask
