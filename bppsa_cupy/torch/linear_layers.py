"""Linear recurrent layers as modules: PyTorch's operations around `linear_scan`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from bppsa_cupy import layers
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers.linear_recurrent import Library
from bppsa_cupy.torch import cells, checks
from bppsa_cupy.torch.graphs import is_proxy, record_call
from bppsa_cupy.torch.scan import linear_scan

_LIBRARY = Library(
    module=torch,
    scan=linear_scan,
    concatenate=torch.cat,
    stack=torch.stack,
    zeros=lambda array, shape: array.new_zeros(shape),
    steps=lambda array, count: torch.arange(count, device=array.device),
    functions=cells,
)


class LinearOverTime(torch.nn.Module):
    """What modules of recurrences without W_hh share. Arguments are those of the layer of this name in
    bppsa_cupy; sequences are (B, T, F), or (T, B, F) with batch_first=False.

    Parameters are the layer's, by its names, and begin as the layer's do, drawn by PyTorch's generator.
    Derivatives are of any order, forward mode excepted, and `torch.compile` takes the module.
    """

    engine: ClassVar[Callable[..., layers.LinearRecurrent]]

    def __init__(self, *arguments: Any, device: Any = None, dtype: Any = None, **options: Any) -> None:
        super().__init__()
        self.layer = self.engine(*arguments, **options)
        self._cell = self.layer.cell_in(_LIBRARY)
        shapes = self.layer.parameter_shapes()
        self._names = tuple(shapes)
        for name, shape in shapes.items():
            empty = torch.empty(shape, device=device, dtype=dtype)
            self.register_parameter(name, torch.nn.Parameter(empty))
        self.reset_parameters()

    def __getattr__(self, name: str) -> Any:
        if name in ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "bidirectional"):
            return getattr(self.layer, name)
        return super().__getattr__(name)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_cell"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._cell = self.layer.cell_in(_LIBRARY)

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        seed = int(torch.randint(2**62, ()))
        for name, value in self.layer.initialize(np.random.default_rng(seed)).items():
            with torch.no_grad():
                getattr(self, name).copy_(torch.from_numpy(value))

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, torch.Tensor]:
        """Output and last state of sequences.

        input  (B, T, F), (T, F) without a batch, or a PackedSequence; float32 or float64, as the parameters
        hx     the state before the first step, (num_layers D, B, H), complex where the layer's is; without a
               batch (num_layers D, H); zeros without it

        Raises ShapeError and DeviceError naming both sides.
        """
        if is_proxy(input):
            return record_call(self, input, hx)
        parameters = {name: getattr(self, name) for name in self._names}
        states = [] if hx is None else [hx]
        if isinstance(input, PackedSequence):
            return self._over_pack(input, hx, parameters)
        self._check(input, states, parameters)
        checks.check_sequence(self, input)
        axis = 0 if self.layer.batch_first else 1
        if input.dim() == 2:
            y, after = self.forward(input.unsqueeze(axis), None if hx is None else hx.unsqueeze(1))
            return y.squeeze(axis if self.layer.outputs == "all" else 0), after.squeeze(1)
        x = input.transpose(0, 1) if axis else input
        checks.check_states(self, states, x.shape[0])
        y, after = self.layer.forward_in(_LIBRARY, self._cell, parameters, x, None, hx)
        return y.transpose(0, 1) if axis and y.dim() == 3 else y, after

    def _check(self, x: Any, states: list[torch.Tensor], parameters: Mapping[str, torch.Tensor]) -> None:
        real = [torch.view_as_real(state) if state.is_complex() else state for state in states]
        checks.check_tensors(self, x, real, list(parameters.values()))

    def _over_pack(self, pack: PackedSequence, hx: Any, parameters: Any) -> tuple[PackedSequence, Any]:
        self._check(pack.data, [] if hx is None else [hx], parameters)
        x, lengths = checks.unpack(type(self).__name__, pack, self.layer.input_size)
        checks.check_states(self, [] if hx is None else [hx], x.shape[0])
        order, back = pack.sorted_indices, pack.unsorted_indices
        first = hx if hx is None or order is None else hx.index_select(1, order)
        y, after = self.layer.forward_in(_LIBRARY, self._cell, parameters, x, lengths.to(x.device), first)
        after = after if back is None else after.index_select(1, back)
        return (checks.repack(y, lengths, pack) if y.dim() == 3 else y if back is None else y[back]), after

    def step(self, input: torch.Tensor, hx: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Output (B, O) and state after one step, of (B, F) and the state that the step before gave. Raises
        ShapeError with two directions."""
        if self.layer.bidirectional:
            raise ShapeError(f"{self.layer!r} has two directions and so no step: use bidirectional=False")
        axis = 1 if self.layer.batch_first else 0
        y, after = self.forward(input.unsqueeze(axis), hx)
        return y.reshape(input.shape[0], -1), after

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.layer.config().items())


class LinearCellLayer(LinearOverTime):
    """A module whose unit does what a linear `bp.Cell` says: see `bp.LinearCellLayer`, the cell first."""

    engine = layers.LinearCellLayer


class MinGRU(LinearOverTime):
    """minGRU: see `bp.MinGRU`."""

    engine = layers.MinGRU


class MinLSTM(LinearOverTime):
    """minLSTM: see `bp.MinLSTM`."""

    engine = layers.MinLSTM


class SRU(LinearOverTime):
    """A simple recurrent unit: see `bp.SRU`."""

    engine = layers.SRU


class QRNN(LinearOverTime):
    """A quasi-recurrent layer: see `bp.QRNN`."""

    engine = layers.QRNN


class RGLRU(LinearOverTime):
    """The real-gated linear recurrent unit: see `bp.RGLRU`."""

    engine = layers.RGLRU


class LRU(LinearOverTime):
    """The linear recurrent unit: see `bp.LRU`."""

    engine = layers.LRU


class DiagonalSSM(LinearOverTime):
    """S5's diagonal state space: see `bp.DiagonalSSM`."""

    engine = layers.DiagonalSSM
