"""When a module calls PyTorch's operator: where that is faster, and until the kernels are compiled."""

from __future__ import annotations

import atexit
import logging
import os
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import _VF
from torch.autograd import forward_ad
from torch.nn.utils.rnn import PackedSequence

from bppsa_cupy.functional.ahead import PassKind, run_pass, start_compiler
from bppsa_cupy.raw_kernels.twins.simd.vectors import WIDE
from bppsa_cupy.system.compilation import NotCompiledError, compiled_only
from bppsa_cupy.torch.engine import on_host
from bppsa_cupy.torch.transforms import hide_from_dynamo, is_recorded

logger = logging.getLogger("bppsa_cupy.torch")

#: By a module's arguments and a call's kind: whether PyTorch's operator computes it, and the passes that
#: compile the kernels. Kinds round steps and samples to powers of two, which change no kernel.
_decisions: dict[Any, bool] = {}
_passes: dict[Any, list[PassKind]] = {}
_lock = threading.Lock()


#: PyTorch's operators by a module's mode.
_OPERATORS: dict[str, Any] = {
    mode: getattr(_VF, mode.lower()) for mode in ("LSTM", "GRU", "RNN_TANH", "RNN_RELU")
}


@hide_from_dynamo
def one_step(module: Any, x: Any, hx: Any) -> Sequence[torch.Tensor] | None:
    """Output and last states of one step on the CPU, by PyTorch's operator without the checks of its module.

    None where the call is another one, or an argument does not fit.
    """
    if _is_transformed() or type(x) is not torch.Tensor or not x.is_cpu or x.dim() != 3:
        return None
    steps, batch, features = x.shape
    batch_first = module.batch_first
    if batch_first:
        steps, batch = batch, steps
    if steps != 1 or features != module.input_size:
        return None
    known, mode, layers, both = module._parameters, module.mode, module.num_layers, module.bidirectional
    state = (layers * 2 if both else layers, batch, module.hidden_size)
    if hx is None:
        hx = torch.zeros(state, dtype=x.dtype)
        if mode == "LSTM":
            hx = hx, hx
    elif mode == "LSTM":
        if type(hx) is not tuple or len(hx) != 2 or hx[0].shape != state or hx[1].shape != state:
            return None
    elif type(hx) is not torch.Tensor or hx.shape != state:
        return None
    try:
        weights = [known[name] for name in module._flat_weights_names]
        if mode == "LSTM" and not both:
            small = batch < 32 or module.hidden_size <= 64 or torch.is_grad_enabled()
            if small and hx[0].dtype == hx[1].dtype == x.dtype and not torch.is_autocast_enabled("cpu"):
                return _by_cells(x, hx, weights, layers, module.dropout * module.training, int(batch_first))
        return _OPERATORS[mode](
            x, hx, weights, module.bias, layers, module.dropout, module.training, both, batch_first
        )
    except (AttributeError, KeyError, RuntimeError, TypeError):
        return None


def _by_cells(
    x: torch.Tensor, hx: Any, weights: Sequence[torch.Tensor], layers: int, dropout: float, axis: int
) -> Sequence[torch.Tensor]:
    """One step of an LSTM by PyTorch's cell. The operator of the layer copies the weights into
    another layout, which takes up to seven times as long as the step."""
    x, after, count = x.squeeze(axis), [], len(weights) // layers
    for layer in range(layers):
        if layer and dropout:
            x = torch.dropout(x, dropout, True)
        of_layer = weights[layer * count : (layer + 1) * count]
        after.append(_VF.lstm_cell(x, (hx[0][layer], hx[1][layer]), *of_layer))
        x = after[-1][0]
    return x.unsqueeze(axis), *map(torch.stack, zip(*after, strict=True))


def _is_transformed() -> bool:
    """Whether PyTorch records or transforms calls."""
    return is_recorded() or torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


@hide_from_dynamo
def goes_to_pytorch(module: Any, x: Any, hx: Any) -> bool:
    """Whether PyTorch's operator computes this call of a module that has one.

    The choice follows from the module's arguments, the shapes, the dtype, the instruction set, the number of
    threads, and whether gradients are recorded. It does not follow from times. While another process compiles
    the kernels, and under torch.autocast, it is PyTorch's. Inside of torch.func and where PyTorch records a
    graph, it is never PyTorch's.
    """
    if _is_transformed():
        return False
    packed = isinstance(x, PackedSequence)
    values = x.data if packed else x
    if not isinstance(values, torch.Tensor):
        return False
    kind = values.device.type
    if kind in ("cpu", "cuda") and torch.is_autocast_enabled(kind):
        return True
    if kind != "cpu":
        return False
    if packed:
        steps, batch = len(x.batch_sizes), int(x.batch_sizes[0])
    elif values.dim() == 3:
        steps, batch = values.shape[:2]
        if module.batch_first:
            steps, batch = batch, steps
    else:
        steps, batch = values.shape[0] if values.dim() == 2 else 0, 1
    key = (
        steps * batch * module.hidden_size >= LARGE, torch.get_num_threads(), module.mode, module.input_size,
        module.hidden_size, module.num_layers, module.bias, module.batch_first, module.bidirectional,
        module.training and bool(module.dropout), values.dtype, steps.bit_length(), batch.bit_length(),
        packed, hx is not None, torch.is_grad_enabled(), module.waits,
    )  # fmt: skip
    decision = _decisions.get(key)
    return _decide(key, steps, batch) if decision is None else decision


#: Steps times samples times units from which on the workspace of PyTorch's LSTM in training exceeds 32 MiB:
#: then malloc gives each pass new pages.
LARGE = 600_000


def is_faster(
    large: bool, threads: int, mode: str, dtype: torch.dtype, hidden: int, steps: int, batch: int,
    gradients: bool, packed: bool,
) -> bool:  # fmt: skip
    """Whether PyTorch's operator is the faster one for a layer of these sizes on the CPU.

    Measured with AVX2 and with AVX-512, where oneDNN has an LSTM for float32. Bounds of steps and samples are
    powers of two, as `_decisions` has them. `large` compares the sizes with LARGE.
    """
    if steps == 1:
        return True
    if packed:
        return not gradients and hidden >= 96 and batch >= 16
    if mode != "LSTM" or dtype != torch.float32:
        return False
    terms = 1 << (steps.bit_length() + batch.bit_length() - 2)
    # Two threads gain little from the one block of lanes that 16 to 31 samples fill.
    least = 48 if WIDE or (threads > 1 and 16 <= batch < 32) else 96
    if gradients:
        return hidden >= (32 if WIDE and terms >= 1024 else least) and terms >= 32 and not large
    if WIDE:
        return hidden >= 32 and terms >= (256 if batch < 16 else 128)
    return hidden >= least and (hidden < 512 or steps < 32 or batch < 8)


def _decide(key: Any, steps: int, batch: int) -> bool:
    """The decision for a kind of call, which is stored unless it may change."""
    large, threads, mode, inputs, hidden, layers, bias, batch_first, both, drops, dtype = key[:11]
    _, _, packed, states, gradients, waits = key[11:]
    if not steps or not batch or dtype not in (torch.float32, torch.float64):
        return False
    if is_faster(large, threads, mode, dtype, hidden, steps, batch, gradients, packed):
        _decisions[key] = True
        return True
    if waits or os.environ.get("BPPSA_WAIT") == "1" or torch.are_deterministic_algorithms_enabled():
        return False
    with _lock:
        if key not in _passes:
            name = str(dtype).removeprefix("torch.")
            rest = bias, batch_first, both, name, steps, batch, packed, states, gradients
            if drops and layers > 1:  # the inner layers run one by one
                each = [(inputs, hidden, 1), (hidden * (1 + both), hidden, 1)]
            else:
                each = [(inputs, hidden, layers)]
            _passes[key] = [PassKind(mode, sizes, *rest) for sizes in each]
        pending = [kind for kind in _passes[key] if not _is_compiled(kind)]
        if not pending:
            _decisions[key] = False
    return bool(pending)


#: The process that compiles, the passes that it or one before it was given, and those that wait for the next.
_child: subprocess.Popen[bytes] | None = None
_given: set[PassKind] = set()
_waiting: dict[PassKind, None] = {}
#: The passes that need no other process.
_compiled: set[PassKind] = set()


def _is_compiled(kind: PassKind) -> bool:
    """Whether the kernels of a pass are compiled, or no other process can do it. Asks for them otherwise."""
    if kind in _compiled:
        return True
    is_busy = _child is not None and _child.poll() is None
    if is_busy and (kind in _given or kind in _waiting):
        return False
    try:
        with compiled_only():
            on_host(lambda device: run_pass(kind))
    except NotCompiledError:
        if kind not in _given:
            _waiting[kind] = None
            if is_busy or _start():
                return False
    _waiting.pop(kind, None)
    _compiled.add(kind)
    return True


def _start() -> bool:
    """Have another process compile the kernels of the passes that wait; False where there can be none."""
    global _child
    try:
        _child = start_compiler(list(_waiting))
    except OSError:
        return False
    logger.info("another process compiles the kernels; PyTorch runs until they are ready")
    _given.update(_waiting)
    _waiting.clear()
    return True


@atexit.register
def _stop() -> None:
    """End the process that compiles; what it has compiled stays in the cache."""
    if _child is not None:
        _child.kill()
        _child.wait()


def _forget() -> None:
    """A fork of this process has no part in what the process beside it compiles."""
    global _child, _lock
    _child, _lock = None, threading.Lock()
    _given.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
