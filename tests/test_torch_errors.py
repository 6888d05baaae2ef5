"""What `bppsa_cupy.torch` refuses, and what the messages name."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.autograd import forward_ad
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import bppsa_cupy as bp
import bppsa_cupy.torch as ours
from bppsa_cupy.system.optional import need

X = torch.zeros(5, 2, 3)
PACK = pack_padded_sequence(X, [5, 2])


def with_parts(**parts):
    fields = {"data": PACK.data, "batch_sizes": PACK.batch_sizes}
    return PackedSequence(**{**fields, **parts})


def broken(pack, **parts):
    """A pack some of whose fields are others, past the checks of its constructor."""
    return tuple.__new__(PackedSequence, tuple({**pack._asdict(), **parts}.values()))


ORDER = pack_padded_sequence(X, [2, 5], enforce_sorted=False)

SHAPES = [
    (lambda: ours.LSTM(3, 4, proj_size=2), r"LSTM has proj_size=2: bppsa_cupy.torch takes 0 alone"),
    (lambda: ours.RNN(3, 4, nonlinearity="x"), r"nonlinearity='x': it takes 'tanh' or 'relu'"),
    (lambda: ours.CellLayer("gru", 3, 4), r"CellLayer got cell of str: it takes a bp.Cell"),
    (lambda: ours.GRU(3, 4)(X.double()), r"input dtype \(torch.float64\) .* \(torch.float32\).*input.to\("),
    (lambda: ours.GRU(3, 4)(X, torch.zeros(1, 2, 4).double()), r"hx dtype \(torch.float64\) does not match"),
    (lambda: ours.GRU(3, 4).half()(X.half()), r"GRU has parameters of torch.float16: .*module.float\(\)"),
    (lambda: ours.GRU(3, 4).bfloat16()(X.bfloat16()), r"parameters of torch.bfloat16: it takes"),
    (lambda: ours.GRU(3, 4)(X[..., :2]), r"input.size\(-1\) must be equal to input_size. Expected 3, got 2"),
    (lambda: ours.GRU(3, 4)(X[None]), r"input to be 2D or 3D, got 4D: it takes \(T, B, 3\), or .*\(T, 3\)"),
    (lambda: ours.GRU(3, 4)(X[:, :0]), r"B must be at least 1"),
    (lambda: ours.GRU(3, 4)(X[:0]), r"T must be at least 1"),
    (lambda: ours.GRU(3, 4)(X, torch.zeros(1, 3, 4)), r"hx of shape \(1, 3, 4\): .* it takes \(1, 2, 4\)"),
    (lambda: ours.GRU(3, 4)(X[:, 0], torch.zeros(1, 1, 4)), r"takes \(1, 4\), that is \(num_layers \* dir"),
    (lambda: ours.LSTM(3, 4)(X, torch.zeros(1, 2, 4)), r"hx of Tensor with 1 in it: it takes a tuple of 2"),
    (lambda: ours.GRU(3, 4)(PackedSequence(PACK.data[:, :2], PACK.batch_sizes)), r"pack of \(7, 2\) values"),
    (lambda: ours.GRU(3, 4)(with_parts(batch_sizes=torch.tensor([1, 1, 1, 2, 2]))), r"sizes .* must fall"),
    (lambda: ours.GRU(3, 4)(with_parts(data=PACK.data[1:])), r"of 6 steps .* their sum must be the steps"),
    (
        lambda: ours.GRU(3, 4)(broken(ORDER, unsorted_indices=torch.tensor([0, 1]))),
        r"order is lost: sorted_indices are \[1, 0\], and unsorted_indices, \[0, 1\], do not lead back",
    ),
    (lambda: ours.GRU(3, 4)(broken(ORDER, sorted_indices=None)), r"sorted_indices are None, and unsorted"),
    (lambda: ours.convert(torch.nn.Linear(3, 4)), r"torch.nn.RNN, GRU or LSTM in it, and got .* 1 Linear"),
    (lambda: ours.convert(ours.GRU(3, 4)), r"got one of 1 GRU: give the model that holds them, before"),
    (lambda: ours.revert(torch.nn.GRU(3, 4)), r"revert takes a model with a bppsa_cupy.torch.RNN"),
    (lambda: ours.convert("model"), r"convert got model of str"),
]  # fmt: skip


@pytest.mark.parametrize("call, message", SHAPES, ids=[message for _, message in SHAPES])
def test_shapes_and_dtypes(call, message: str) -> None:
    with pytest.raises(bp.ShapeError, match=message):
        call()


def test_other_devices() -> None:
    with pytest.raises(bp.DeviceError, match=r"GRU lies on cpu and has input on meta: .*\.to\('cpu'\)"):
        ours.GRU(3, 4)(X.to("meta"))
    with pytest.raises(bp.DeviceError, match="GRU lies on meta: it takes cpu or cuda"):
        ours.GRU(3, 4, device="meta")(X.to("meta"))


def test_autocast_is_named() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), ours.GRU(3, 4))
    with (
        torch.autocast("cpu"),
        pytest.raises(bp.ShapeError, match=r"bfloat16\) .* outside of torch.auto"),
    ):
        module(X)


def test_second_derivatives() -> None:
    module, x = ours.LSTM(3, 4), X.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(module(x)[0].sum(), x, create_graph=True)
    assert gradient.shape == x.shape
    with pytest.raises(bp.PassError, match=r"LSTM\(3, 4\) has no second derivatives .*revert\(model\)"):
        gradient.sum().backward()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own, at first use
def test_forward_mode() -> None:
    with forward_ad.dual_level(), pytest.raises(bp.PassError, match="no forward-mode derivatives"):
        ours.GRU(3, 4)(forward_ad.make_dual(X, torch.ones_like(X)))


@pytest.mark.parametrize("transform", [torch.vmap, torch.func.grad, torch.func.jacrev])
def test_transforms(transform) -> None:
    module = ours.GRU(3, 4)
    with pytest.raises(bp.PassError, match=r"GRU is no function for torch.func \(vmap, grad, jvp, jacrev\)"):
        transform(lambda x: module(x)[0].sum())(X[None])


def test_a_hook_that_keeps_copies_of_what_is_saved() -> None:
    module = ours.GRU(3, 4)
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda tensor: tensor):
        y, _ = module(X)
    with pytest.raises(bp.PassError, match=r"a recurrent pass is gone: a hook for saved tensors"):
        y.sum().backward()


def test_pytorch_is_needed_here_alone_and_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import bppsa_cupy\n"
        "try: import bppsa_cupy.torch\n"
        "except ImportError as error: print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    assert result.returncode == 0, result.stderr
    assert (
        "takes PyTorch 2.4 or later" in result.stdout and "pip install 'bppsa-cupy[torch]'" in result.stdout
    )


def test_an_older_pytorch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("bppsa_cupy.torch", "torch", "PyTorch", (2, 4))
    monkeypatch.setattr(torch, "__version__", "2.3.1+cpu")
    with pytest.raises(ImportError, match=r"takes PyTorch 2.4 or later, 2.3.1\+cpu is there"):
        need(*options)
    monkeypatch.setattr(torch, "__version__", "2.10.0a0+git1")
    need(*options)
