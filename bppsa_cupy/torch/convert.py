"""A model's recurrent modules swapped in place."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

import torch

from bppsa_cupy.arguments import as_instance
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.torch import checks
from bppsa_cupy.torch.modules import GRU, LSTM, RNN

Model = TypeVar("Model", bound=torch.nn.Module)

#: torch.nn's modules, and those that take their places.
PAIRS: dict[type[torch.nn.Module], type[torch.nn.Module]] = {
    torch.nn.RNN: RNN,
    torch.nn.GRU: GRU,
    torch.nn.LSTM: LSTM,
}


def convert(model: Model, *, back: bool = False) -> Model:
    """Make every torch.nn.RNN, GRU and LSTM of a model one of bppsa_cupy.torch, or `back`; the model.

    The modules stay the objects they are, with their parameters, hooks and names: an optimizer that knows the
    parameters goes on. Subclasses of torch.nn's are left as they are. Raises ShapeError where there is
    nothing to convert, and where a module has proj_size; nothing is changed then.
    """
    as_instance("convert", "model", model, torch.nn.Module, "a torch.nn.Module")
    targets = {ours: theirs for theirs, ours in PAIRS.items()} if back else PAIRS
    found = {name: module for name, module in model.named_modules() if type(module) in targets}
    if not found:
        kinds = Counter(type(module).__name__ for module in model.modules())
        kept = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        package = "bppsa_cupy.torch" if back else "torch.nn"
        raise ShapeError(
            f"{'revert' if back else 'convert'} takes a model with a {package}.RNN, GRU or LSTM in it, and "
            f"got one of {kept}: give the model that holds them, before it is converted"
        )
    if not back:
        for name, module in found.items():
            checks.check_arguments(module, name)
    for module in found.values():
        module.__class__ = targets[type(module)]
    return model


def revert(model: Model) -> Model:
    """`convert` back: every module of bppsa_cupy.torch becomes torch.nn's; the model."""
    return convert(model, back=True)
