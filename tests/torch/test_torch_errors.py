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
    (lambda: ours.CellLayer("gru", 3, 4), r"CellLayer got cell of str: it takes a bp.Cell"),
    (lambda: ours.GRU(3, 4)(X.double()), r"input dtype \(torch.float64\) .* \(torch.float32\).*input.to\("),
    (lambda: ours.GRU(3, 4)(X, torch.zeros(1, 2, 4).double()), r"hx dtype \(torch.float64\) does not match"),
    (lambda: ours.GRU(3, 4).half()(X.half()), r"GRU has parameters of torch.float16: .*module.float\(\)"),
    (lambda: ours.GRU(3, 4).bfloat16()(X.bfloat16()), r"parameters of torch.bfloat16: it takes"),
    (lambda: ours.GRU(3, 4)(X[..., :2]), r"input.size\(-1\) must be equal to input_size. Expected 3, got 2"),
    (lambda: ours.GRU(3, 4)(X[None]), r"input to be 2D or 3D, got 4D: it takes \(T, B, 3\), or .*\(T, 3\)"),
    (lambda: ours.GRU(3, 4)(X[:, :0]), r"\(5, 0, 3\)"),
    (lambda: ours.GRU(3, 4, batch_first=True)(X[:0]), r"\(0, 2, 3\)"),
    (lambda: ours.MinGRU(3, 4)(X[:, :0]), r"\(5, 0, 3\)"),
    (lambda: ours.GRU(3, 4)(X[:0, 0]), r"\(0, 3\)"),
    (lambda: ours.GRU(3, 4)(X, torch.zeros(1, 3, 4)), r"hx of shape \(1, 3, 4\): .* it takes \(1, 2, 4\)"),
    (lambda: ours.GRU(3, 4)(X[:, 0], torch.zeros(1, 1, 4)), r"takes \(1, 4\), that is \(num_layers \* dir"),
    (lambda: ours.GRU(3, 4)(X.numpy()), r"GRU got input of ndarray: it takes a tensor, as torch.from_numpy"),
    (lambda: ours.GRU(3, 4)([[[1.0] * 3]]), r"GRU got input of list: .* or torch.tensor\(list\)"),
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
    (lambda: ours.revert(torch.nn.Tanh()), r"revert takes a model with a bppsa_cupy.torch.RNN"),
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
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), ours.CellLayer(bp.Cell.built_in("mgu"), 3, 4))
    with torch.autocast("cpu"), pytest.raises(bp.ShapeError, match="bfloat16") as refused:
        module(X)
    assert "model.to(" not in str(refused.value)
    with torch.autocast("cpu"):  # the cure that the message names
        x = module[0](X)
        with torch.autocast("cpu", enabled=False):
            module[1](x.to(torch.float32))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own, at first use
def test_forward_mode() -> None:
    module = ours.GRU(3, 4)
    message = r"GRU\(3, 4\) has no forward-mode derivatives in bppsa_cupy.torch: take reverse mode, or revert"
    with forward_ad.dual_level(), pytest.raises(bp.PassError, match=message):
        module(forward_ad.make_dual(X, torch.ones_like(X)))
    for transform in (torch.func.jacfwd, torch.func.hessian):
        with pytest.raises(bp.PassError, match=message):
            transform(lambda x: module(x)[0].sum())(X)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own
def test_scripts_and_quantization() -> None:
    model = torch.nn.Sequential(ours.GRU(3, 4))
    with pytest.raises(
        bp.PassError, match=r"GRU has no text for torch.jit.script: take torch.compile, or rev"
    ):
        torch.jit.script(model)
    with pytest.warns(UserWarning, match=r"GRU of bppsa_cupy.torch is not quantized: take revert\(model\)"):
        quantized = torch.ao.quantization.quantize_dynamic(model)
    assert torch.equal(quantized(X)[0], model(X)[0])


def test_packs_inside_of_transforms() -> None:
    module = ours.GRU(3, 4)
    with pytest.raises(
        bp.PassError, match=r"GRU got a PackedSequence inside of torch.func.*padded sequences"
    ):
        torch.func.grad(lambda data: module(with_parts(data=data))[0].data.sum())(PACK.data)


def test_pytorch_is_needed_here_alone_and_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import bppsa_cupy\n"
        "try: import bppsa_cupy.torch\n"
        "except ImportError as error: print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    assert result.returncode == 0, result.stderr
    assert "takes PyTorch 2.4 or later" in result.stdout and "pip install -e '.[torch]'" in result.stdout


def test_an_older_pytorch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("bppsa_cupy.torch", "torch", "PyTorch", (2, 4))
    monkeypatch.setattr(torch, "__version__", "2.3.1+cpu")
    with pytest.raises(ImportError, match=r"takes PyTorch 2.4 or later, 2.3.1\+cpu is there"):
        need(*options)
    monkeypatch.setattr(torch, "__version__", "2.10.0a0+git1")
    need(*options)
