"""A loop over steps that is written in PyTorch, as one pass of a kernel."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from bppsa_cupy.errors import ArgumentError, ShapeError
from bppsa_cupy.torch.autograd import run_over_time
from bppsa_cupy.torch.checks import DTYPES, NoKernelError
from bppsa_cupy.torch.engine import mode_of

if TYPE_CHECKING:
    from bppsa_cupy.torch.step_graph import StepGraph

#: Steps of a first call that the loop computes too.
COMPARED = 3
#: How far both may differ, relative to the largest value.
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-10}


class Recurrence(torch.nn.Module):
    """A module that applies a step function to all time steps of sequences. Created by `recurrence`.

    Attributes
    ----------
    step : callable
        The step function.
    reason : str
        The reason why the latest call used a loop, or "" if it used a kernel.

    Examples
    --------
    >>> import torch, bppsa_cupy.torch as bt
    >>> rnn = bt.recurrence(torch.nn.GRUCell(3, 4))
    >>> y, h = rnn(torch.ones(7, 2, 3))
    >>> y.shape, h.shape
    (torch.Size([7, 2, 4]), torch.Size([2, 4]))
    """

    def __init__(self, step: Callable[..., Any], batch_first: bool = False) -> None:
        super().__init__()
        self.step: Any = step
        self.batch_first = batch_first
        self.reason = "the module was not called yet"
        self._graphs: dict[Any, StepGraph | str] = {}
        self._states: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_graphs": {}}

    def forward(self, x: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, Any]:
        """Apply the step function to all time steps of sequences.

        Parameters
        ----------
        x : tensor
            (T, B, ...), or (B, T, ...) with batch_first.
        *rest : tensor
            The initial states, each (B, H), then the extras: further inputs of each step, whose first two
            axes are those of x. If step is a cell of torch.nn, the initial states are zeros by default.

        Returns
        -------
        output : tensor, (T, B, H), or (B, T, H) with batch_first
            The first state after each step.
        states : tensor or tuple of tensors, (B, H) each
            All states after the last step.

        Raises
        ------
        ShapeError
            If a tensor has the wrong shape, dtype or device.
        """
        cell = isinstance(self.step, torch.nn.RNNCellBase)
        if len(rest) == 1 and isinstance(rest[0], (tuple, list)):
            rest = tuple(rest[0])
        x = x.transpose(0, 1) if self.batch_first else x
        if x.dim() < 2 or 0 in x.shape[:2]:
            raise ShapeError(
                f"recurrence got x of shape {tuple(x.shape)}: pass (T, B, ...) with T >= 1 and B >= 1"
            )
        if cell and not rest:
            rest = (x.new_zeros(x.shape[1], self.step.hidden_size),) * self._count(x, rest)
        count = self._count(x, rest)
        if len(rest) < count:
            raise ShapeError(f"recurrence got {len(rest)} states: pass {count} after x, each (B, H)")
        states = list(rest[:count])
        extras = [extra.transpose(0, 1) if self.batch_first else extra for extra in rest[count:]]
        for extra in extras:
            if extra.shape[0] != x.shape[0]:
                raise ShapeError(
                    f"recurrence got an extra of shape {tuple(extra.shape)} for {x.shape[0]} steps: pass one "
                    "value per time step"
                )
        is_layer = cell and not extras and _is_unchanged(self.step, x, states)
        graph = "" if is_layer else self._graph(x, states, extras)
        self.reason = graph if isinstance(graph, str) else ""
        if is_layer:
            step, mode = self.step, "GRU" if isinstance(self.step, torch.nn.GRUCell) else "LSTM"
            if isinstance(step, torch.nn.RNNCell):
                mode = f"RNN_{step.nonlinearity.upper()}"
            arguments = (mode, step.input_size, step.hidden_size, 1, step.bias, False, False)
            names = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if step.bias else [])]
            parameters = [getattr(step, name) for name in names]
            y, *last = run_over_time(arguments, x, None, [state[None] for state in states], parameters)
            after = [state[0] for state in last]
        elif isinstance(graph, str):
            y, after = self._loop(x, states, extras)
        else:
            y, after = _pass_of(graph, self._tensors(), x, states, extras)
        y = y.transpose(0, 1) if self.batch_first else y
        return y, after[0] if count == 1 else tuple(after)

    def extra_repr(self) -> str:
        is_module = isinstance(self.step, torch.nn.Module)
        return "" if is_module else getattr(self.step, "__name__", repr(self.step))

    # ---- the step ----

    def _tensors(self) -> dict[str, torch.Tensor]:
        is_module = isinstance(self.step, torch.nn.Module)
        return {**dict(self.step.named_parameters()), **dict(self.step.named_buffers())} if is_module else {}

    def _function(self, tensors: dict[str, torch.Tensor], x: Any, *rest: Any) -> tuple[Any, ...]:
        """The states after a step, with these tensors, if there are any, in place of the step's."""
        step = self.step
        arguments = (x, tuple(rest)) if isinstance(step, torch.nn.LSTMCell) else (x, *rest)
        after = torch.func.functional_call(step, tensors, arguments) if tensors else step(*arguments)
        return tuple(after) if isinstance(after, (tuple, list)) else (after,)

    def _count(self, x: torch.Tensor, rest: Sequence[Any]) -> int:
        """How many of the arguments are states: as many as a step gives."""
        if isinstance(self.step, torch.nn.RNNCellBase):
            return 2 if isinstance(self.step, torch.nn.LSTMCell) else 1
        if self._states is not None:
            return self._states
        cause: Exception | None = None
        axis = 1 if self.batch_first else 0
        for count in range(1, len(rest) + 1):
            try:
                with torch.no_grad(), torch.random.fork_rng(devices=[]):
                    extras = (extra.select(axis, 0) for extra in rest[count:])
                    after = self._function({}, x[0], *rest[:count], *extras)
            except Exception as error:  # a step may be any program
                cause = cause or error
                continue
            if len(after) == count:
                self._states = count
                return count
        raise ShapeError(
            f"recurrence got {len(rest)} states and extras, which do not match the step function: it must "
            "accept x_t, the states and the extras, and return one new state per state"
        ) from cause

    def _loop(
        self, x: torch.Tensor, states: Sequence[Any], extras: Sequence[Any]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        outputs, states = [], list(states)
        for t in range(len(x)):
            states = list(self._function({}, x[t], *states, *(extra[t] for extra in extras)))
            outputs.append(states[0])
        return torch.stack(outputs), states

    # ---- its kernel ----

    def _graph(self, x: torch.Tensor, states: Sequence[Any], extras: Sequence[Any]) -> StepGraph | str:
        """The step's graph for such a call, or why it has no kernel."""
        of_inputs = [(tensor.dtype, tensor.device.type, tensor.shape[1:]) for tensor in (x, *extras)]
        key = (self.training, *of_inputs, *((state.dtype, state.shape) for state in states))
        if key not in self._graphs:
            try:
                self._graphs[key] = self._made(x, states, extras)
            except NoKernelError as error:
                self._graphs[key] = str(error)
        return self._graphs[key]

    def _made(self, x: torch.Tensor, states: Sequence[Any], extras: Sequence[Any]) -> StepGraph:
        from bppsa_cupy.torch.step_graph import StepGraph  # here, since it imports SymPy

        tensors = self._tensors()
        if {tensor.dtype for tensor in (*states, *tensors.values()) if tensor.is_floating_point()} - {
            states[0].dtype
        } or (states[0].dtype not in DTYPES):
            raise NoKernelError("the states and parameters are not all float32 or all float64")
        state = torch.get_rng_state()
        try:
            with torch.enable_grad():
                # A tensor may be passed twice.
                examples = [tensor.clone() for tensor in (*states, *(extra[0] for extra in extras))]
                graph = StepGraph(self._function, tensors, x[0], examples, len(states))
            steps = min(COMPARED, len(x))
            with torch.no_grad():
                torch.set_rng_state(state)
                expected, _ = self._loop(x[:steps], states, [extra[:steps] for extra in extras])
                torch.set_rng_state(state)
                actual, _ = _pass_of(graph, tensors, x[:steps], states, [extra[:steps] for extra in extras])
        except NoKernelError:
            raise
        except Exception as error:  # a step may be any program
            raise NoKernelError(f"PyTorch cannot trace the step: {error}") from error
        finally:
            torch.set_rng_state(state)
        scale = max(1.0, float(expected.abs().max()))
        if not (actual - expected).abs().max() <= TOLERANCE[expected.dtype] * scale:
            warnings.warn(
                f"{self!r} runs as a loop: its kernel and the loop differ in the first {steps} "
                "steps, for example because the step counts its calls or branches on values",
                stacklevel=4,
            )
            raise NoKernelError("the kernel and the loop return different values")
        return graph


def recurrence(step: Callable[..., Any], *, batch_first: bool = False) -> Recurrence:
    """Return a module that runs a step function in PyTorch over whole sequences, if possible with one kernel.

    Parameters
    ----------
    step : callable or torch.nn.Module
        The step function ``step(x_t, *states, *extras)``, which returns the new state or a tuple of new
        states. RNNCell, GRUCell and LSTMCell of torch.nn are such step functions.
    batch_first : bool, default False
        Whether sequences are (B, T, ...) instead of (T, B, ...).

    Returns
    -------
    Recurrence
        A module that is called as ``module(x, *states, *extras)``.

    Notes
    -----
    A kernel is used if the step multiplies weights by the first state, or by an elementwise function of the
    states such as tanh(h), and all its other operations are elementwise over the units. Weights may be any
    function of the parameters. Random numbers are drawn in the same order as in a loop. For other step
    functions a loop is used, and `reason` and `report` give the reason. The first call computes its first
    steps both with the kernel and in a loop, and compares the results.

    Examples
    --------
    >>> import torch, bppsa_cupy.torch
    >>> weight = torch.nn.Parameter(torch.eye(4) / 2)
    >>> def step(x, h):
    ...     return 0.9 * h + 0.1 * torch.tanh(x + h @ weight)
    >>> rnn = bppsa_cupy.torch.recurrence(step)
    >>> y, h = rnn(torch.ones(50, 2, 4), torch.zeros(2, 4))
    >>> y.shape, rnn.reason
    (torch.Size([50, 2, 4]), '')
    """
    if not callable(step):
        raise ArgumentError(
            f"recurrence got a {type(step).__name__}: pass a function step(x_t, *states, *extras)"
        )
    return Recurrence(step, batch_first)


def _is_unchanged(cell: torch.nn.RNNCellBase, x: torch.Tensor, states: Sequence[torch.Tensor]) -> bool:
    """Whether a call of a cell of torch.nn is that of the engine's layer of this kind."""
    kinds = torch.nn.RNNCell, torch.nn.GRUCell, torch.nn.LSTMCell
    tensors = x, *states, *cell.parameters()
    return (
        any(type(cell).forward is kind.forward for kind in kinds)
        and "forward" not in vars(cell)
        and not cell._forward_hooks
        and not cell._forward_pre_hooks
        and x.dim() == 3
        and x.shape[-1] == cell.input_size
        and x.dtype in DTYPES
        and len({(tensor.dtype, tensor.device) for tensor in tensors}) == 1
        and all(state.shape == (x.shape[1], cell.hidden_size) for state in states)
    )


def _pass_of(
    graph: StepGraph, tensors: dict[str, torch.Tensor], x: Any, states: Sequence[Any], extras: Sequence[Any]
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    gates, before, parameters = graph.prepare(list(tensors.values()), x, states, extras)
    arguments = (mode_of(graph.cell, "projected"), gates.shape[-1], graph.hidden, 1, True, False, False)
    y, *after = run_over_time(arguments, gates, None, [state[None] for state in before], parameters)
    return y, [state[0] for state in after[-len(states) :]]
