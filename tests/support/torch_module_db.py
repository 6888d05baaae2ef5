"""PyTorch's own tests of its recurrent modules, their inputs and their errors, on ours."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing._internal.common_modules import ModuleErrorEnum, module_db
from torch_cases import assert_same, flat, gradients

import bppsa_cupy as bp
import bppsa_cupy.torch as ours

KINDS = ("RNN", "GRU", "LSTM")


def entries(kind: str) -> Any:
    """PyTorch's own tests of a module: its entry, and its class here."""
    (info,) = (info for info in module_db if info.module_cls is getattr(torch.nn, kind))
    return info, getattr(ours, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_the_inputs_of_pytorchs_module_tests(kind: str) -> None:
    info, cls = entries(kind)
    packed = {} if kind == "LSTM" else {"with_packed_sequence": True}
    samples = info.module_inputs_func(
        info, device="cpu", dtype=torch.float64, requires_grad=True, training=True, **packed
    )
    run = 0
    for sample in samples:
        arguments = sample.constructor_input
        if arguments.kwargs.get("proj_size"):
            with pytest.raises(bp.ShapeError, match="proj_size=2"):
                cls(*arguments.args, **arguments.kwargs)
            continue
        module = cls(*arguments.args, **arguments.kwargs).double()
        theirs = getattr(torch.nn, kind)(*arguments.args, **arguments.kwargs).double()
        theirs.load_state_dict(module.state_dict())
        inputs = sample.forward_input.args
        results = [flat(m(*inputs)) for m in (module, theirs)]
        assert_same(*results)
        leaves = [t for given in inputs for t in (given if isinstance(given, tuple) else (given,))]
        leaves = [t for t in leaves if t is not None and t.is_leaf and t.requires_grad]
        assert_same(*(gradients(m, r, *leaves) for m, r in zip((module, theirs), results, strict=True)))
        run += 1
    assert run >= 16


@pytest.mark.parametrize("kind", KINDS)
def test_the_errors_of_pytorchs_module_tests(kind: str) -> None:
    info, cls = entries(kind)
    samples = info.module_error_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=False, training=False
    )
    assert len(samples) >= 4
    for sample in samples:
        arguments = sample.module_error_input.constructor_input
        call = sample.module_error_input.forward_input
        if sample.error_on is ModuleErrorEnum.CONSTRUCTION_ERROR:
            with pytest.raises(sample.error_type, match=sample.error_regex):
                cls(*arguments.args, **arguments.kwargs)
        else:
            module = cls(*arguments.args, **arguments.kwargs)
            with pytest.raises(sample.error_type, match=sample.error_regex):
                module(*call.args, **call.kwargs)
