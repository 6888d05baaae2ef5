"""Masks: pruning by magnitude (See et al. 2016), and regrowth by the gradient (Evci et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_instance, as_number, is_one_of
from bppsa_cupy.errors import PruneError
from bppsa_cupy.network.sequential import Sequential

SCOPES = ("layer", "global")
A_SHARE = "a number from 0 to 1, as 0.97"


def prune(network: Sequential, fraction: float, scope: str = "layer") -> dict[str, np.ndarray]:
    """Set the `fraction` of weights of the smallest magnitude to 0, where masks hold them from now on.

    Weights of Conv2d and Linear layers are pruned; biases and recurrent layers are kept whole.

    fraction  from 0 to 1, of all weights; those that are masked already count, and stay masked, so that
              pruning again only adds zeros
    scope     "layer" prunes that fraction in every layer (See et al.: class-uniform); "global" by one
              threshold over all layers (class-blind), which may take the whole of a layer whose weights are
              small, as wide layers' are before training

    Returns the masks by parameter name, bool and read-only: True where the weight is kept. A layer that
    loses no weight has none. Of n weights round(fraction · n) are pruned. Magnitudes are compared
    in float32, equal ones by their position, the first one pruned first: networks of both dtypes get the same
    masks.

    The network's fingerprint follows the masks, so a plan made before does not fit any more: make a new one.
    Raises PruneError for another fraction or scope, weights that are not finite, and a network with no such
    layer; nothing is pruned then.
    """
    as_instance("prune", "a network", network, Sequential, "a Sequential", error=PruneError)
    fraction = as_number("prune", "fraction", fraction, lambda f: 0 <= f <= 1, A_SHARE, error=PruneError)
    if not is_one_of(scope, SCOPES):
        raise PruneError(f"prune got scope={scope!r}: it takes 'layer' or 'global'")
    present = {name: network.masks.get(name) for name in network.architecture.maskable}
    magnitudes = {name: _magnitudes(network, name, mask) for name, mask in present.items()}
    if not present:
        raise PruneError("the network has no Conv2d or Linear: there is nothing to prune")
    if scope == "layer":
        kept = {name: _kept(values, fraction) for name, values in magnitudes.items()}
    else:
        ends = np.cumsum([values.size for values in magnitudes.values()])
        together = _kept(np.concatenate(list(magnitudes.values())), fraction)
        kept = dict(zip(magnitudes, np.split(together, ends[:-1]), strict=True))
    masks = {
        name: kept[name].reshape(network.parameters.layout.shapes[name])
        for name, mask in present.items()
        if mask is not None or not kept[name].all()
    }
    network.set_masks(masks)
    return network.masks


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


def _magnitudes(network: Sequential, name: str, mask: np.ndarray | None) -> np.ndarray:
    """|w| in float32, flat; -1 where it is masked. Raises PruneError where a weight is not finite."""
    weights = np.asarray(network.device.to_host(network.parameters[name]))
    if not np.isfinite(weights).all():
        raise PruneError(f"{name} holds NaN or infinity: it cannot be pruned by magnitude")
    values = np.abs(weights.astype(np.float32)).ravel()
    if mask is not None:
        values[~mask.ravel()] = -1
    return values


def _kept(magnitudes: np.ndarray, fraction: float) -> np.ndarray:
    """Which of the values stay when the smallest `fraction` goes, and with it all that are -1."""
    count = round(fraction * magnitudes.size)
    kept = magnitudes >= 0
    if count:
        threshold = np.partition(magnitudes, count - 1)[count - 1]
        below = magnitudes < threshold
        kept &= ~below
        kept[np.flatnonzero(magnitudes == threshold)[: count - int(below.sum())]] = False
    return kept
