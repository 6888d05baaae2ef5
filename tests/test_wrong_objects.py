"""Objects of another class than a function takes are refused by name, before anything is done."""

import numpy as np
import pytest

import bppsa_cupy as bp

NET = bp.Sequential([bp.Linear(3, 2)], (3,), device="host")
GRADIENT = np.ones((3, 2), "float32")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bp.prune(3, 0.5), "prune got a network of int: it takes a Sequential"),
        (lambda: bp.prune(None, 0.5), "of NoneType"),
        (lambda: bp.fold_batch_norm([]), "fold_batch_norm got a network of list"),
        (lambda: bp.clip_grad_norm({}, 1.0), "clip_grad_norm got gradients of dict: .*net.gradients"),
        (lambda: bp.scan(GRADIENT, 3), "scan got jacobians of int: it takes a list"),
        (lambda: bp.scan(GRADIENT, "J"), "of str"),
        (lambda: bp.scan(GRADIENT, [], plan=3), "scan got a plan of int: it takes one of plan_scan"),
        (lambda: bp.distribute(3, None), "distribute got a network of int"),
        (lambda: bp.distribute(NET, 4), "distribute got a group of int: it takes a bp.Group"),
        (lambda: bp.Placement(3, ()), "Placement got a network of int"),
        (lambda: bp.balanced_ppv(3, 1), "balanced_ppv got a network of int"),
        (lambda: bp.balanced_ppv(NET, "x"), "balanced_ppv got cuts='x'"),
        (lambda: bp.Pipeline(3, ()), "Pipeline got a network of int"),
        (lambda: bp.Pipeline(NET, (), group=3), "Pipeline got group of int: it takes a Group, or None"),
        (lambda: bp.Pipeline(NET, (), trace=3), "Pipeline got trace of int: it takes a Trace, or None"),
        (lambda: bp.Residual(3), "Residual got body of int: it takes a list of layers"),
        (lambda: bp.Residual([], "x"), "Residual got shortcut of str"),
        (lambda: NET.set_masks(3), "set_masks got masks of int: it takes arrays by the weight's name"),
        (lambda: bp.exact_max_pool2d(3, GRADIENT), "exact_max_pool2d got geometry of int"),
    ],
)
def test_is_refused_by_name(call, words):
    with pytest.raises(bp.BppsaError, match=words):
        call()
