"""A model's recurrent modules, and its pruned ones, swapped in place."""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeVar

import torch

from bppsa_cupy.arguments import as_instance, as_number, is_one_of
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.torch import checks
from bppsa_cupy.torch.modules import GRU, LSTM, RNN
from bppsa_cupy.torch.pruned import Pruned
from bppsa_cupy.torch.pruning import SPARSE, fill_up, find_pruned, thin_out

Model = TypeVar("Model", bound=torch.nn.Module)

#: torch.nn's modules, and those that take their places.
PAIRS: dict[type[torch.nn.Module], type[torch.nn.Module]] = {
    torch.nn.RNN: RNN,
    torch.nn.GRU: GRU,
    torch.nn.LSTM: LSTM,
}


def convert(model: Model, *, back: bool = False, sparse: str | float | None = None) -> Model:
    """Make every torch.nn.RNN, GRU and LSTM of a model one of bppsa_cupy.torch, or `back`; the model.

    sparse  None leaves all else as it is. "auto" also takes every Conv2d and Linear whose weights are pruned
            so far that passes by the list of what is kept are predicted to be quicker; a share from 0 to 1
            every one with at least that share of zeros. Pruned are the weights that `weight_mask` of
            torch.nn.utils.prune masks, or without one those that are 0 now. Kept positions stay as they are,
            but for a `weight_mask` that changes

    The modules stay the objects they are, with their parameters, hooks, names and state dicts: an optimizer
    that knows the parameters goes on. Subclasses of torch.nn's are left as they are, and so are convolutions
    whose padding is not of zeros, and a model whose modules are all converted. Raises ShapeError where it has
    no such module at all, where one has proj_size, where a pruned weight is computed by a parametrization,
    for masks of other values than 0 and 1, and for another `sparse`; nothing is changed then.
    """
    as_instance("convert", "model", model, torch.nn.Module, "a torch.nn.Module")
    targets = {ours: theirs for theirs, ours in PAIRS.items()} if back else PAIRS
    found = {name: module for name, module in model.named_modules() if type(module) in targets}
    masks = {} if sparse is None or back else find_pruned(model, _checked_share(sparse))
    thin = [m for m in model.modules() if isinstance(m, Pruned)] if back else []
    if not found and not masks and not thin:
        present = {type(module) for module in model.modules()}
        if sparse is not None or present & {*targets.values(), *(SPARSE if back else SPARSE.values())}:
            return model
        kinds = Counter(type(module).__name__ for module in model.modules())
        kept = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        package = "bppsa_cupy.torch" if back else "torch.nn"
        raise ShapeError(
            f"{'revert' if back else 'convert'} takes a model with a {package}.RNN, GRU or LSTM in it, and "
            f"got one of {kept}: give the model that holds them"
        )
    if not back:
        for name, module in found.items():
            checks.check_arguments(module, name)
    for module in found.values():
        module.__class__ = targets[type(module)]
    for module, mask in masks.items():
        thin_out(module, mask)
    for module in thin:
        fill_up(module)
    return model


def _checked_share(sparse: Any) -> float | None:
    """The least share of zeros; None for "auto"."""
    if is_one_of(sparse, ["auto"]):
        return None
    takes = "'auto', or a share of zeros from 0 to 1, as 0.9"
    return as_number("convert", "sparse", sparse, lambda share: 0 <= share <= 1, takes)


def revert(model: Model) -> Model:
    """`convert` back: every module of bppsa_cupy.torch becomes torch.nn's; the model. Weights outside of a
    mask are 0 from then on."""
    return convert(model, back=True)
