"""Masks that keep other weights: drop by magnitude, grow by the gradient (Evci et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_instance, as_number
from bppsa_cupy.errors import PruneError
from bppsa_cupy.network.prune import A_SHARE
from bppsa_cupy.network.sequential import Sequential


def regrow(network: Sequential, gradients: Mapping[str, Any], fraction: float) -> dict[str, np.ndarray]:
    """Drop the `fraction` of every layer's kept weights with the smallest magnitudes, and keep as many that
    have the largest gradients of those left (Evci et al. 2020, algorithm 1); the new masks.

    gradients  by all weights of each layer with a mask, by the weight's name, of its shape: those of a pass
               without masks. Of k kept weights round(fraction · k) are dropped. Equal magnitudes, compared
               in float32, are dropped by their position, the first one first; of equal gradients the first
               ones grow

    Raises PruneError for another fraction, for gradients that are missing, of another shape or not finite;
    nothing is changed then.
    """
    as_instance("regrow", "a network", network, Sequential, "a Sequential", error=PruneError)
    fraction = as_number("regrow", "fraction", fraction, lambda f: 0 <= f <= 1, A_SHARE, error=PruneError)
    takes = "arrays by the weight's name"
    as_instance("regrow", "gradients", gradients, Mapping, takes, error=PruneError)  # type: ignore[type-abstract]
    masks, host = network.masks, network.device.to_host
    changed = {}
    for name, mask in masks.items():
        if name not in gradients:
            raise PruneError(
                f"regrow got no gradient by {name}: growth goes by the gradients by all weights, as after "
                "net.set_masks({}), a pass and net.backward"
            )
        gradient = np.abs(np.asarray(host(gradients[name]), np.float32))
        if gradient.shape != mask.shape or not np.isfinite(gradient).all():
            found = f"of shape {gradient.shape}" if gradient.shape != mask.shape else "with NaN or infinity"
            raise PruneError(f"regrow got a gradient {found} by {name} {mask.shape}: it takes a finite one")
        weights = np.abs(np.asarray(host(network.parameters[name]), np.float32)).ravel()
        kept = np.flatnonzero(mask)
        count = round(fraction * kept.size)
        stay = np.sort(kept[np.argsort(weights[kept], kind="stable")[count:]])
        left = np.ones(mask.size, bool)
        left[stay] = False
        candidates = np.flatnonzero(left)
        grown = candidates[np.argsort(-gradient.ravel()[candidates], kind="stable")[:count]]
        new = ~left
        new[grown] = True
        changed[name] = new.reshape(mask.shape)
    network.set_masks(changed)
    return network.masks
