"""Arguments that `bppsa_cupy.torch` refuses: the error's class, and the two sides that it names."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from refusals import assert_refused
from torch import nn
from torch.autograd import forward_ad
from torch.nn.utils import parametrizations, prune
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import bppsa_cupy as bp
import bppsa_cupy.torch as ours

X, PAIR = torch.zeros(5, 2, 3), torch.ones(2, 3)
PACK = pack_padded_sequence(X, [5, 2])


def with_parts(pack: PackedSequence, **parts: object) -> PackedSequence:
    """A pack some of whose fields are others, past the checks of its constructor."""
    return tuple.__new__(PackedSequence, tuple({**pack._asdict(), **parts}.values()))


def gru(x: object, hx: object = None, **options: object) -> None:
    ours.GRU(3, 4, **options)(x, hx)


def scan(a: object) -> None:
    ours.linear_scan(a, torch.zeros(2, 5, 3))


def pruned_layer(change) -> None:
    layer = nn.Linear(8, 8)
    change(layer)
    ours.convert(nn.Sequential(layer), sparse=0.5)


def half_mask(layer: nn.Linear) -> None:
    prune.custom_from_mask(layer, "weight", torch.full_like(layer.weight, 0.5))


def normed(layer: nn.Linear) -> None:
    parametrizations.weight_norm(layer)
    with torch.no_grad():
        layer.parametrizations.weight.original1[:, 1:] = 0


def leaky(x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return 0.8 * h + 0.2 * torch.tanh(x)


class Calling(nn.Module):
    """Calls a function with its input."""

    def __init__(self, function, *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, *self.layers)


def jacobians(*arguments: object) -> None:
    ours.jacobians(*arguments)


def coupled(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean(0)


SUMMING = Calling(lambda x, layer: layer(x + 1, x, x)[0], nn.MultiheadAttention(3, 1))
UNTRACKED = nn.BatchNorm1d(3, track_running_stats=False).double()
ARGUMENT, SHAPE, PASS = bp.ArgumentError, bp.ShapeError, bp.PassError
REFUSED = [
    (lambda: ours.LSTM(3, 4, proj_size=2), ARGUMENT, "proj_size=2", "0"),
    (lambda: ours.CellLayer("gru", 3, 4), ARGUMENT, "str", "bp.Cell"),
    (lambda: ours.CellLayer(bp.Cell.built_in("gru"), 3, 4, 2, dropout=1.5), ARGUMENT, "1.5", "0 to 1"),
    (lambda: gru(X.double()), SHAPE, "torch.float64", "torch.float32"),
    (lambda: gru(X, torch.zeros(1, 2, 4).double()), SHAPE, "hx", "torch.float64"),
    (lambda: ours.GRU(3, 4).half()(X.half()), SHAPE, "torch.float16", "module.float()"),
    (lambda: gru(X[..., :2]), SHAPE, "got 2", "Expected 3"),
    (lambda: gru(X[None]), SHAPE, "4D", "(T, B, 3)"),
    (lambda: gru(X[:, :0]), SHAPE, "(5, 0, 3)", "at least one"),
    (lambda: gru(X[:0], batch_first=True), SHAPE, "(0, 2, 3)", "at least one"),
    (lambda: ours.MinGRU(3, 4)(X[:, :0]), SHAPE, "(5, 0, 3)", "at least one"),
    (lambda: ours.MinGRU(3, 4)(X.double()), SHAPE, "float64", "float32"),
    (lambda: gru(X, torch.zeros(1, 3, 4)), SHAPE, "(1, 3, 4)", "(1, 2, 4)"),
    (lambda: gru(X.numpy()), ARGUMENT, "ndarray", "torch.from_numpy"),
    (lambda: ours.LSTM(3, 4)(X, torch.zeros(1, 2, 4)), SHAPE, "Tensor", "tuple of 2"),
    (lambda: gru(PackedSequence(PACK.data[:, :2], PACK.batch_sizes)), SHAPE, "(7, 2)", "3"),
    (lambda: gru(with_parts(PACK, batch_sizes=torch.tensor([1, 1, 1, 2, 2]))), SHAPE, "sizes", "invalid"),
    (lambda: gru(with_parts(PACK, data=PACK.data[1:])), SHAPE, "6 steps", "pack_padded_sequence"),
    (lambda: ours.GRU(3, 4)(X, None, torch.zeros(5, 2)), SHAPE, "resets", "bool"),
    (lambda: ours.GRU(3, 4)(PACK, None, torch.zeros(5, 2).bool()), ARGUMENT, "resets", "PackedSequence"),
    (lambda: gru(X.to("meta")), bp.DeviceError, "meta", "cpu"),
    (lambda: ours.convert(nn.Linear(3, 4)), ARGUMENT, "1 Linear", "LSTM"),
    (lambda: ours.revert(nn.Tanh()), ARGUMENT, "revert", "bppsa_cupy.torch.RNN"),
    (lambda: ours.convert(nn.Linear(3, 4), sparse=1.5), ARGUMENT, "sparse=1.5", "1"),
    (lambda: pruned_layer(half_mask), ARGUMENT, "0 (Linear)", "weight_mask"),
    (lambda: pruned_layer(normed), ARGUMENT, "weight", "remove_parametrizations"),
    (lambda: ours.recurrence(3), ARGUMENT, "int", "step"),
    (lambda: ours.recurrence(nn.RNNCell(3, 4))(X[:0]), SHAPE, "(0, 2, 3)", "T"),
    (lambda: scan(torch.zeros(2, 5, 3, dtype=torch.float64)), SHAPE, "torch.float64", "torch.float32"),
    (lambda: scan([0.5]), ARGUMENT, "list", "tensors"),
    (lambda: scan(torch.zeros(2, 4, 3)), SHAPE, "(2, 4, 3)", "5"),
    (lambda: scan(torch.zeros(2, 5, 3, device="meta")), bp.BppsaError, "meta", "cpu"),
    (lambda: jacobians(3, X), ARGUMENT, "int", "torch.nn.Module"),
    (lambda: jacobians(leaky, X), ARGUMENT, "leaky", "h0"),
    (lambda: jacobians(nn.GRUCell(3, 3), X), ARGUMENT, "GRUCell", "h0"),
    (lambda: jacobians(nn.Sequential(nn.Dropout()), PAIR), PASS, "Dropout", "model.eval"),
    (lambda: jacobians(nn.BatchNorm1d(3), PAIR), PASS, "BatchNorm1d", "eval"),
    (lambda: jacobians(UNTRACKED.eval(), PAIR.double()), PASS, "BatchNorm1d", "evaluation mode"),
    (lambda: jacobians(nn.GRU(3, 4, 2, dropout=0.5), X), PASS, "GRU", "eval"),
    (lambda: jacobians(Calling(lambda x, layer: layer(x), nn.Sequential(Calling(coupled))), PAIR), PASS,
     "Calling", "couples"),
    (lambda: jacobians(nn.Sequential(Calling(lambda x, layer: x.mul_(2), nn.ReLU())), PAIR), PASS,
     "0 (Calling)", "calls none"),
    (lambda: jacobians(nn.Sequential(nn.Linear(3, 2, dtype=torch.complex64)), PAIR * 1j), SHAPE,
     "torch.complex64", "0 (Linear)"),
    (lambda: jacobians(SUMMING, X), ARGUMENT, "MultiheadAttention", "one"),
    (lambda: jacobians(Calling(lambda x, layer: x, nn.ReLU()), PAIR), ARGUMENT, "none", "1 layers"),
    (lambda: jacobians(leaky, PAIR, PAIR.int()), SHAPE, "torch.int32", "h0"),
    (lambda: jacobians(leaky, PAIR, np.ones(3)), ARGUMENT, "ndarray", "h0"),
    (lambda: jacobians(leaky, PAIR[:, None], PAIR), SHAPE, "(2, 1, 3)", "(T, 2, ...)"),
    (lambda: jacobians(lambda x, h: h[1:], PAIR, PAIR[0]), SHAPE, "(2,)", "h"),
    (lambda: jacobians(lambda x, h: coupled(h), X, X[0]), PASS, "couples", "h"),
    (lambda: bp.lyapunov_exponents(nn.GRU(3, 4)), ARGUMENT, "x", "pass steps"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_refused_arguments(case: int) -> None:
    assert_refused(*REFUSED[case])


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own, at first use
def test_forward_mode_is_refused() -> None:
    module, x = ours.GRU(3, 4).double(), X.double()
    with forward_ad.dual_level(), pytest.raises(PASS):
        module(forward_ad.make_dual(x, torch.ones_like(x)))
    for transform in (torch.func.jacfwd, torch.func.hessian):
        with pytest.raises(PASS):
            transform(lambda x: module(x)[0].sum())(x)


def test_the_package_is_imported_without_pytorch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import bppsa_cupy\n"
        "try: import bppsa_cupy.torch\n"
        "except ImportError as error: print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    assert result.returncode == 0 and "'.[torch]'" in result.stdout, result.stderr
