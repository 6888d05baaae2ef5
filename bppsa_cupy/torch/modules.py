"""torch.nn's recurrent modules on the engine's passes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch.nn.utils.rnn import PackedSequence

from bppsa_cupy.arguments import as_instance
from bppsa_cupy.cells import Cell
from bppsa_cupy.errors import ArgumentError, PassError, ShapeError
from bppsa_cupy.torch import checks
from bppsa_cupy.torch.autograd import apply, run_over_time
from bppsa_cupy.torch.engine import Arguments, engine_layer_of, mode_of
from bppsa_cupy.torch.handover import goes_to_pytorch, one_step


class OverTime(torch.nn.Module):
    """The forward pass that all modules here share, with torch.nn's arguments and results.

    A module has torch.nn's attributes (mode, input_size, hidden_size, num_layers, bias, batch_first, dropout,
    bidirectional) and parameters, whose names in order are `_flat_weights_names`.
    """

    mode: str
    input_size: int
    hidden_size: int
    num_layers: int
    bias: bool
    batch_first: bool
    bidirectional: bool
    dropout: Any
    _flat_weights_names: list[str]
    #: The module of torch.nn whose place it takes.
    torch_class: ClassVar[Any] = None
    #: Whether the first call waits until its kernels are compiled.
    waits = False

    @property
    def _components(self) -> int:
        """How many tensors a state is."""
        return 2 if self.mode == "LSTM" else 1

    def forward(self, input: Any, hx: Any = None, resets: Any = None) -> tuple[Any, Any]:
        """Compute outputs and last states, as the torch.nn module of this name does.

        Parameters
        ----------
        input : tensor or PackedSequence
            (T, B, F), (B, T, F) with batch_first, or (T, F) without a batch; float32 or float64.
        hx : tensor or tuple of tensors, optional
            The states before the first step, (num_layers D, B, H), or (num_layers D, H) without a batch. An
            LSTM uses (h, c). Zeros by default.
        resets : bool tensor, optional
            (T, B), (B, T) with batch_first, or (T,). The state before a marked step is zero, as at the
            beginning of an episode.

        Returns
        -------
        output : tensor or PackedSequence
            The outputs of the last layer.
        states : tensor or tuple of tensors
            The states after the last step.

        Raises
        ------
        ShapeError, DeviceError
            If a tensor has the wrong shape, dtype or device. The message names both sides.
        ArgumentError
            If input is not a tensor or PackedSequence.
        """
        if resets is None and self.torch_class is not None:
            results = one_step(self, input, hx)
            if results is not None:
                return results[0], results[1] if len(results) == 2 else results[1:]
            if goes_to_pytorch(self, input, hx):
                try:
                    return self.torch_class.forward(self, input, hx)
                except (RuntimeError, TypeError, ValueError):
                    pass  # an argument that the checks below name
        known = self._parameters
        parameters: list[Any] = [
            known[name] if name in known else getattr(self, name) for name in self._flat_weights_names
        ]
        if hx is None and resets is None and checks.is_plain(self, input, parameters):
            engine = engine_layer_of(*self._arguments(self.batch_first, self.input_size, self.num_layers))
            y, *after = apply(engine, None, (), input, parameters)
            return y, _state(after)
        is_exported = torch.compiler.is_exporting() or torch.jit.is_tracing()
        if is_exported and resets is None and self.torch_class is not None:  # other programs have no kernels
            return self.torch_class.forward(self, input, hx)
        checks.check_arguments(self)
        states: list[torch.Tensor] = []
        if hx is not None:
            states = list(hx) if isinstance(hx, (tuple, list)) else [hx]
            if len(states) != self._components or not all(isinstance(s, torch.Tensor) for s in states):
                takes = "a tensor" if self._components == 1 else f"a tuple of {self._components} tensors"
                raise ShapeError(
                    f"{type(self).__name__} got hx of {type(hx).__name__} with {len(states)} items: pass "
                    f"{takes}"
                )
        if resets is not None:
            checks.check_resets(self, input, resets)
        elif isinstance(input, PackedSequence):
            checks.check_tensors(self, input.data, states, parameters)

            def call(x: Any, lengths: Any, states: Any) -> Sequence[torch.Tensor]:
                return self._over(x, lengths, True, states, parameters)

            y, after = checks.over_pack(self, input, states, call)
            return y, _state(after)
        checks.check_tensors(self, input, states, parameters)
        checks.check_sequence(self, input)
        axis = 0 if self.batch_first else 1
        batched = input.dim() == 3
        checks.check_states(self, states, input.shape[axis] if batched else None)
        if resets is not None:  # (B, T)
            resets = resets if batched and self.batch_first else resets.T if batched else resets[None]
        if batched:
            y, *after = self._over(input, resets, self.batch_first, states, parameters)
            return y, _state(after)
        x, states = input.unsqueeze(axis), [state.unsqueeze(1) for state in states]
        y, *after = self._over(x, resets, self.batch_first, states, parameters)
        return y.squeeze(axis), _state([state.squeeze(1) for state in after])

    def _get_name(self) -> str:
        """The class as `print` shows it, beside torch.nn's of the same name."""
        return f"bppsa_cupy.{super()._get_name()}"

    def __prepare_scriptable__(self) -> None:
        """What torch.jit.script calls first. Raises PassError."""
        raise PassError(
            f"{type(self).__name__} does not support torch.jit.script: use torch.compile, or convert the "
            "model back with revert(model)"
        )

    def _over(
        self, x: torch.Tensor, bounds: Any, batch_first: bool, states: Any, parameters: Any
    ) -> Sequence[torch.Tensor]:
        """Output and last states of padded sequences; in training with dropout between inner layers.

        bounds are lengths (B,), or bools (B, T) that mark resets, or None.

        Law: zeros are drawn from PyTorch's generator of the device of x over outputs (T, B, columns) in
        memory order, as the torch.nn modules on the CPU draw theirs for padded sequences: with equal seeds
        both drop the same values.
        """
        if not (self.training and self.dropout and self.num_layers > 1):
            arguments = self._arguments(batch_first, self.input_size, self.num_layers)
            return run_over_time(arguments, x, bounds, states, parameters)
        features = self.hidden_size * (2 if self.bidirectional else 1)
        count = len(parameters) // self.num_layers
        rows = states[0].shape[0] // self.num_layers if states else 0
        after = []
        for number in range(self.num_layers):
            initial = [state[number * rows : (number + 1) * rows] for state in states]
            weights = parameters[number * count : (number + 1) * count]
            arguments = self._arguments(batch_first, features if number else self.input_size, 1)
            x, *last = run_over_time(arguments, x, bounds, initial, weights)
            after.append(last)
            if number + 1 < self.num_layers:
                by_time = x.transpose(0, 1).contiguous() if batch_first else x
                x = torch.nn.functional.dropout(by_time, self.dropout)
                x = x.transpose(0, 1) if batch_first else x
        return [x, *map(torch.cat, zip(*after, strict=True))]

    def _arguments(self, batch_first: bool, inputs: int, layers: int) -> Arguments:
        """Those of inner layers."""
        return self.mode, inputs, self.hidden_size, layers, self.bias, batch_first, self.bidirectional


def _state(after: Sequence[torch.Tensor]) -> Any:
    """States as torch.nn gives them: a tensor, or a tuple of several."""
    return after[0] if len(after) == 1 else tuple(after)


class RNN(OverTime, torch.nn.RNN):
    """A replacement for torch.nn.RNN that runs on the kernels of this package.

    Arguments, parameters and results are those of torch.nn.RNN.

    Examples
    --------
    >>> import torch, bppsa_cupy.torch as bt
    >>> y, h = bt.RNN(3, 4, batch_first=True)(torch.ones(2, 7, 3))
    >>> y.shape, h.shape
    (torch.Size([2, 7, 4]), torch.Size([1, 2, 4]))
    """

    torch_class = torch.nn.RNN


class GRU(OverTime, torch.nn.GRU):
    """A replacement for torch.nn.GRU that runs on the kernels of this package.

    Arguments, parameters and results are those of torch.nn.GRU.

    Examples
    --------
    >>> import torch, bppsa_cupy.torch as bt
    >>> y, h = bt.GRU(3, 4, batch_first=True)(torch.ones(2, 7, 3))
    >>> y.shape, h.shape
    (torch.Size([2, 7, 4]), torch.Size([1, 2, 4]))
    """

    torch_class = torch.nn.GRU


class LSTM(OverTime, torch.nn.LSTM):
    """A replacement for torch.nn.LSTM that runs on the kernels of this package.

    Arguments, parameters and results are those of torch.nn.LSTM.

    Raises
    ------
    ArgumentError
        If proj_size is not 0.

    Examples
    --------
    >>> import torch, bppsa_cupy.torch as bt
    >>> y, (h, c) = bt.LSTM(3, 4, batch_first=True)(torch.ones(2, 7, 3))
    >>> y.shape, c.shape
    (torch.Size([2, 7, 4]), torch.Size([1, 2, 4]))
    """

    torch_class = torch.nn.LSTM

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        checks.check_arguments(self)


class CellLayer(OverTime):
    """A PyTorch module that runs a `bp.Cell` over sequences.

    Parameters
    ----------
    cell : bp.Cell
        The cell, which must not be linear. Use `LinearCellLayer` for linear cells.
    input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype
        As in torch.nn.GRU. Sequences are (T, B, F), or (B, T, F) with batch_first=True.

    Raises
    ------
    ArgumentError
        If the cell is linear.

    Notes
    -----
    Each inner layer and direction has the parameters weight_ih_l0 (G H, F), weight_hh_l0 (R H, H),
    bias_ih_l0 (G H,), bias_hh_l0 (R H,), and NAME_l0 (H,) for each parameter of the cell. F is the input
    size, H the hidden size, G the number of gates, and R the number of recurrent gates. All parameters are
    initialised uniformly in ±1/sqrt(H). Pickle cannot save a module whose step it cannot import, such as a
    lambda. Save the state_dict of such a module instead.

    Examples
    --------
    >>> import torch, bppsa_cupy as bp, bppsa_cupy.torch as bt
    >>> layer = bt.CellLayer(bp.Cell.built_in("gru"), 3, 4)
    >>> layer(torch.ones(7, 2, 3))[0].shape
    torch.Size([7, 2, 4])
    """

    def __init__(
        self,
        cell: Cell,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.cell = as_instance(type(self).__name__, "cell", cell, Cell, "a bp.Cell")
        if cell.is_linear:
            raise ArgumentError(f"CellLayer got {cell!r}, which is linear: use LinearCellLayer")
        self.mode = mode_of(cell)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.bidirectional = bias, batch_first, bidirectional
        self.dropout = dropout
        checks.check_arguments(self)
        engine = engine_layer_of(*self._arguments(batch_first, input_size, num_layers))
        self._flat_weights_names = list(engine.names)
        for name, shape in engine.layer.parameter_shapes().items():
            self.register_parameter(name, torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self.reset_parameters()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.mode = mode_of(self.cell)

    @property
    def _components(self) -> int:
        return len(self.cell.states)

    def reset_parameters(self) -> None:
        """Draw all parameters again, uniformly in ±1/sqrt(H)."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            torch.nn.init.uniform_(parameter, -bound, bound)

    def extra_repr(self) -> str:
        return f"{self.cell!r}, {self.input_size}, {self.hidden_size}, num_layers={self.num_layers}"
