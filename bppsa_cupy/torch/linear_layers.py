"""Linear recurrent layers as modules: PyTorch's operations around `linear_scan`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, ClassVar

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from bppsa_cupy import layers
from bppsa_cupy.layers.diagonal_recurrent import DiagonalRecurrent
from bppsa_cupy.torch import cells, checks
from bppsa_cupy.torch.scan import linear_scan


class LinearOverTime(torch.nn.Module):
    """Base class of linear recurrent modules, which have no W_hh.

    Parameters
    ----------
    *arguments, **options
        Arguments of the layer of this name in bppsa_cupy. Sequences are (B, T, F), or (T, B, F) with
        batch_first=False.
    device, dtype : optional
        The device and the dtype of the parameters.

    Notes
    -----
    Parameters have the names and distributions of the layer, drawn by the generator of PyTorch. Derivatives
    have any order, except in forward mode. torch.compile accepts the module.
    """

    engine: ClassVar[Callable[..., layers.LinearRecurrent]]

    def __init_subclass__(cls, engine: type[layers.LinearRecurrent] | None = None) -> None:
        if engine is not None:
            cls.engine = engine

    def __init__(self, *arguments: Any, device: Any = None, dtype: Any = None, **options: Any) -> None:
        super().__init__()
        self.layer = self.engine(*arguments, **options)
        self._cell = _functions_of(self.layer)
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
        self._cell = _functions_of(self.layer)

    def reset_parameters(self) -> None:
        """Draw all parameters again."""
        seed = int(torch.randint(2**62, ()))
        for name, value in self.layer.initialize(np.random.default_rng(seed)).items():
            with torch.no_grad():
                getattr(self, name).copy_(torch.from_numpy(value))

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, torch.Tensor]:
        """Compute outputs and last states of sequences.

        Parameters
        ----------
        input : tensor or PackedSequence
            (B, T, F), or (T, F) without a batch; float32 or float64.
        hx : tensor, optional
            The states before the first step, (1, B, H), or (1, H) without a batch.
            Complex if the states of the layer are. Zeros by default.

        Returns
        -------
        output : tensor or PackedSequence
            The outputs.
        state : tensor
            The states after the last step.

        Raises
        ------
        ShapeError, DeviceError
            If a tensor has the wrong shape, dtype or device. The message names both sides.
        """
        parameters = {name: getattr(self, name) for name in self._names}
        states = [] if hx is None else [hx]
        if isinstance(input, PackedSequence):
            self._check(input.data, states, parameters)

            def call(x: Any, lengths: Any, states: Any) -> Any:
                first = states[0] if states else None
                return self._over(parameters, x, lengths.to(x.device), first)

            y, last = checks.over_pack(self, input, states, call)
            return y, last[0]
        self._check(input, states, parameters)
        checks.check_sequence(self, input)
        axis = 0 if self.layer.batch_first else 1
        if input.dim() == 2:
            y, after = self.forward(input.unsqueeze(axis), None if hx is None else hx.unsqueeze(1))
            return y.squeeze(axis if self.layer.outputs == "all" else 0), after.squeeze(1)
        x = input.transpose(0, 1) if axis else input
        checks.check_states(self, states, x.shape[0])
        y, after = self._over(parameters, x, None, hx)
        return y.transpose(0, 1) if axis and y.dim() == 3 else y, after

    def _over(self, parameters: Mapping[str, torch.Tensor], x: Any, lengths: Any, hx: Any) -> tuple[Any, Any]:
        """The output and the last states (1, B, H) of sequences (B, T, F)."""
        named = {name.removesuffix("_l0"): parameter for name, parameter in parameters.items()}
        first, live = None if hx is None else hx[0], None
        last: Any = (slice(None), -1)
        if lengths is not None:
            live = (torch.arange(x.shape[1], device=x.device) < lengths.unsqueeze(1)).unsqueeze(2)
            x, last = torch.where(live, x, 0), (torch.arange(len(x), device=x.device), lengths - 1)
        y, h = self._scan(named, x, lengths, first)
        y = y if live is None else torch.where(live, y, 0)
        return (y[last] if self.layer.outputs == "last" else y), h[last][None]

    def _scan(self, parameters: Mapping[str, Any], x: Any, lengths: Any, first: Any) -> tuple[Any, Any]:
        """Outputs (B, T, columns) and states (B, T, H)."""
        layer, H = self.layer, self.layer.hidden_size
        if isinstance(layer, DiagonalRecurrent):
            made = layer.discretised(torch, parameters)
            matrix = made.gain[:, None] * (parameters["B_re"] + 1j * parameters["B_im"])
            term = x @ matrix.real.T + 1j * (x @ matrix.imag.T)
            h = linear_scan(made.factor, term, first, False, lengths)
            y = layer.scale * (h.real @ parameters["C_re"].T - h.imag @ parameters["C_im"].T)
            return y + x * parameters["D"], h
        weight, bias = parameters["weight_ih"], parameters["bias_ih"] if layer.bias else None
        has_all = bias is not None and len(bias) == len(weight)
        gates = list(torch.nn.functional.linear(x, weight, bias if has_all else None).split(H, -1))
        if layer.skips:
            gates.append(x)
        if bias is not None and not has_all:
            for place, gate in enumerate(layer.biased):
                gates[gate] = gates[gate] + bias[place * H : (place + 1) * H]
        (terms, output), unit = self._cell, layer.unit_values(torch, parameters)
        (factor,), (term,) = terms(gates, unit)
        h = linear_scan(factor, term, first, False, lengths)
        return (h if output is None else output(gates, (h,), unit)[0]), h

    def _check(self, x: Any, states: list[torch.Tensor], parameters: Mapping[str, torch.Tensor]) -> None:
        real = [torch.view_as_real(state) if state.is_complex() else state for state in states]
        checks.check_tensors(self, x, real, list(parameters.values()))

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.layer.config().items())


def _functions_of(layer: layers.LinearRecurrent) -> list[Any]:
    """The functions of a layer's cell, for tensors: the text of its twins is plain Python."""
    twins = getattr(layer.cell, "functions", None)  # state spaces have no cell
    functions = () if twins is None else (twins.terms, twins.output)
    return [each and FunctionType(each.__code__, vars(cells), each.__name__) for each in functions]


class LinearCellLayer(LinearOverTime, engine=layers.LinearCellLayer):
    """Module of a linear `bp.Cell`: ``y, c = module(x)`` for x (B, T, F).

    The constructor has the arguments of `bp.LinearCellLayer`.

    Examples
    --------
    >>> import torch, bppsa_cupy as bp, bppsa_cupy.torch as bt
    >>> def step(x, u, s, p):
    ...     return {"c": bp.cells.sigmoid(x.f) * s.c + x.c}
    >>> cell = bp.Cell("forget", gates=["f", "c"], states=["c"], recurrent=[], step=step)
    >>> bt.LinearCellLayer(cell, 3, 4)(torch.ones(2, 7, 3))[0].shape
    torch.Size([2, 7, 4])
    """


class MinGRU(LinearOverTime, engine=layers.MinGRU):
    """minGRU as a module: ``y, h = module(x)`` for x (B, T, F).

    The constructor has the arguments of `bp.MinGRU`.

    Examples
    --------
    >>> import torch, bppsa_cupy.torch as bt
    >>> y, h = bt.MinGRU(3, 4)(torch.ones(2, 7, 3))
    >>> y.shape
    torch.Size([2, 7, 4])
    """


class MinLSTM(LinearOverTime, engine=layers.MinLSTM):
    """minLSTM as a module: ``y, h = module(x)`` for x (B, T, F).

    The constructor has the arguments of `bp.MinLSTM`.

    Examples
    --------
    >>> import torch, bppsa_cupy.torch as bt
    >>> y, h = bt.MinLSTM(3, 4)(torch.ones(2, 7, 3))
    >>> y.shape
    torch.Size([2, 7, 4])
    """


class SRU(LinearOverTime, engine=layers.SRU):
    """Simple recurrent unit as a module: ``y, c = module(x)`` for x (B, T, F).

    The constructor has the arguments of `bp.SRU`.

    Examples
    --------
    >>> import torch, bppsa_cupy.torch as bt
    >>> y, h = bt.SRU(3, 4)(torch.ones(2, 7, 3))
    >>> y.shape
    torch.Size([2, 7, 4])
    """


class QRNN(LinearOverTime, engine=layers.QRNN):
    """Quasi-recurrent layer as a module: ``y, c = module(x)`` for x (B, T, F).

    The constructor has the arguments of `bp.QRNN`.

    Examples
    --------
    >>> import torch, bppsa_cupy.torch as bt
    >>> y, h = bt.QRNN(3, 4)(torch.ones(2, 7, 3))
    >>> y.shape
    torch.Size([2, 7, 4])
    """


class RGLRU(LinearOverTime, engine=layers.RGLRU):
    """Real-gated linear recurrent unit as a module: ``y, h = module(x)``.

    The constructor has the arguments of `bp.RGLRU`.

    Examples
    --------
    >>> import torch, bppsa_cupy.torch as bt
    >>> y, h = bt.RGLRU(4)(torch.ones(2, 7, 4))
    >>> y.shape
    torch.Size([2, 7, 4])
    """


class LRU(LinearOverTime, engine=layers.LRU):
    """Linear recurrent unit as a module: ``y, h = module(x)`` for x (B, T, F).

    The constructor has the arguments of `bp.LRU`.

    Examples
    --------
    >>> import torch, bppsa_cupy.torch as bt
    >>> y, h = bt.LRU(3, 4)(torch.ones(2, 7, 3))
    >>> y.shape
    torch.Size([2, 7, 3])
    """


class DiagonalSSM(LinearOverTime, engine=layers.DiagonalSSM):
    """Diagonal state space model of S5 as a module: ``y, h = module(x)``.

    The constructor has the arguments of `bp.DiagonalSSM`.

    Examples
    --------
    >>> import torch, bppsa_cupy.torch as bt
    >>> y, h = bt.DiagonalSSM(3, 4)(torch.ones(2, 7, 3))
    >>> y.shape
    torch.Size([2, 7, 3])
    """
