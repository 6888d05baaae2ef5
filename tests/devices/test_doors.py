"""PyTorch's modules and JAX's functions on a GPU's own tensors and streams; on a CPU as a rehearsal."""

from __future__ import annotations

import numpy as np
import pytest

ON = [pytest.param("cpu", marks=pytest.mark.long), pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("place", ON)
def test_modules_of_pytorch(place: str) -> None:
    """Results and gradients are torch.nn's on the CPU, also on a stream of PyTorch's and of packs."""
    torch = pytest.importorskip("torch")
    from torch_cases import assert_same, flat, gradients, pair

    if place == "cuda" and not torch.cuda.is_available():
        pytest.skip("this PyTorch finds no GPU")
    for kind in ("RNN", "GRU", "LSTM"):
        theirs, ours = pair(kind, 3, 20, 2, bidirectional=True)
        x = torch.randn(7, 4, 3, dtype=torch.float64, requires_grad=True)
        there, module = x.detach().to(place).requires_grad_(), ours.to(place)
        stream = torch.cuda.stream(torch.cuda.Stream()) if place == "cuda" else torch.enable_grad()
        lengths = torch.tensor([7, 2, 5, 1])
        pack = torch.nn.utils.rnn.pack_padded_sequence
        for packed in (False, True):
            inputs = [pack(t, lengths, enforce_sorted=False) if packed else t for t in (x, there)]
            expected = flat(theirs(inputs[0]))
            wanted = gradients(theirs, expected, x)
            with stream:
                outputs = flat(module(inputs[1]))
                got = gradients(module, outputs, there)
            if place == "cuda":
                torch.cuda.synchronize()
            assert all(tensor.device.type == place for tensor in (*outputs, *got))
            assert_same([t.cpu() for t in (*outputs, *got)], [*expected, *wanted])


@pytest.mark.parametrize("place", ON)
def test_functions_of_jax(place: str) -> None:
    """Results and gradients are torch.nn's, in float32, also of jit."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("jax")
    from jax_cases import bj, draw, jax, loss_of
    from torch_cases import assert_same, flat, gradients

    try:
        there = jax.devices(place)[0]
    except RuntimeError as error:
        pytest.skip(f"JAX finds no such device: {error}")
    function = bj.GRU(3, 20, bidirectional=True)
    params, x, state = draw(function, 2, 5, np.float32)
    theirs = torch.nn.GRU(3, 20, bidirectional=True, batch_first=True)
    theirs.load_state_dict({name: torch.from_numpy(value) for name, value in params.items()})
    inputs = [torch.from_numpy(value).requires_grad_() for value in (x, state)]
    expected = flat(theirs(*inputs))
    by_x, by_state, *by_params = gradients(theirs, expected, *inputs)
    wanted = dict(zip(dict(theirs.named_parameters()), by_params, strict=True))

    def loss(*arguments):
        results = function(*arguments)
        return loss_of(results), results

    ours = jax.value_and_grad(loss, (0, 1, 2), has_aux=True)
    for call in (ours, jax.jit(ours)):
        outputs = call(*jax.device_put((params, x, state), there))
        assert all(leaf.devices() == {there} for leaf in jax.tree.leaves(outputs))
        (_, results), (got, *others) = jax.device_get(outputs)
        pairs = [*zip((*results, *others), (*expected, by_x, by_state), strict=True)]
        pairs += [(got[name], wanted[name]) for name in wanted]
        assert_same(*map(list, zip(*((torch.from_numpy(np.array(a)), b) for a, b in pairs), strict=True)))
