"""Objects of another class than a function takes are refused by name, before anything is done."""

import numpy as np
import pytest

import bppsa_cupy as bp
from bppsa_cupy.data import Split, batches, load
from bppsa_cupy.functional import forward, vjp
from bppsa_cupy.models import build_model
from bppsa_cupy.scan.primitive import plan_scan

NET = bp.Sequential([bp.Linear(3, 2)], (3,), device="host")
GRADIENT = np.ones((3, 2), "float32")
SCAN = GRADIENT, [(bp.Pattern.diagonal(3), np.ones(3))]
PARAMETERS = {"weight": np.ones((2, 3), "float32"), "bias": np.ones(2, "float32")}
SPLIT = Split(np.ones((4, 3), "float32"), np.zeros(4, int), None)
SEQUENCES = bp.Sequential([bp.RNN(2, 3)], (4, 2), device="host")
SEQUENCES.forward(np.ones((1, 4, 2), "float32"))
RECORDS = SEQUENCES.transposed_jacobians()


def saved():
    """What a pass through the linear layer keeps."""
    return forward(NET.layers[0], PARAMETERS, GRADIENT.T)[1]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bp.prune(3, 0.5), "prune got a network of int: it takes a Sequential"),
        (lambda: bp.fold_batch_norm([]), "fold_batch_norm got a network of list"),
        (lambda: bp.clip_grad_norm({}, 1.0), "clip_grad_norm got gradients of dict: .*net.gradients"),
        (lambda: bp.scan(GRADIENT, 3), "scan got jacobians of int: it takes a list"),
        (lambda: bp.scan(GRADIENT, [], plan=3), "scan got a plan of int: it takes one of plan_scan"),
        (lambda: bp.distribute(3, None), "distribute got a network of int"),
        (lambda: bp.distribute(NET, 4), "distribute got a group of int: it takes a bp.Group"),
        (lambda: bp.Placement(3, ()), "Placement got a network of int"),
        (lambda: bp.balanced_ppv(3, 1), "balanced_ppv got a network of int"),
        (lambda: bp.Pipeline(3, ()), "Pipeline got a network of int"),
        (lambda: bp.Pipeline(NET, (), group=3), "Pipeline got group of int: it takes a Group, or None"),
        (lambda: bp.Residual(3), "Residual got body of int: it takes a list of layers"),
        (lambda: bp.Residual([], "x"), "Residual got shortcut of str"),
        (lambda: NET.set_masks(3), "set_masks got masks of int: it takes arrays by the weight's name"),
        (lambda: bp.exact_max_pool2d(3, GRADIENT), "exact_max_pool2d got geometry of int"),
        (lambda: bp.scan(GRADIENT, [], method=np.ones(2)), "method array.* a scan takes linear"),
        (lambda: bp.scan(*SCAN, injections=0), "scan got injections of int: it takes a list"),
        (lambda: bp.scan(*SCAN, group=0.0), "scan got group of float: it takes a bp.Group"),
        (lambda: bp.scan(*SCAN, levels=np.ones(2)), "levels .* were asked for"),
        (lambda: bp.cross_entropy(GRADIENT, [0, 1, 1], device="host"), "a loss got device of str"),
        (lambda: bp.mse_loss(GRADIENT, GRADIENT, device=np.ones(2)), "a loss got device of ndarray"),
        (lambda: bp.Adam(NET.parameters, groups=1j), "an optimizer got groups of complex"),
        (lambda: bp.SGD(NET.parameters, groups=None), "an optimizer got groups of NoneType"),
        (lambda: bp.prune(NET, 0.5, np.ones(2)), "prune got scope=array"),
        (lambda: bp.Sequential([], (3,), device=np.ones(2)), "device array.* was asked for"),
        (lambda: NET.plan(schedules=np.ones(2)), "schedules .* were asked for: there are"),
        (lambda: NET.backward(GRADIENT, of=np.ones(2)), "a ndarray was given for a pass"),
        (lambda: NET.load_state_dict({}, by_order=np.ones(2)), "load_state_dict got by_order=array"),
        (
            lambda: NET.load_state_dict({"a": 1.5, "b": "x"}, by_order=True),
            r"'a' has shape \(\), and '0.weight'",
        ),
        (lambda: NET.load_state_dict({"0.weight": dict, "0.bias": 3}), "cannot be read|of object"),
        (lambda: NET.plan(progress=np.ones(2)), "plan got progress=array"),
        (
            lambda: NET.plan(schedules=np.array(2.5)),
            "plan got schedules of ndarray: it takes a list of names",
        ),
        (lambda: plan_scan(SCAN[1], schedules=np.array(2)), "plan_scan got chain of list"),
        (lambda: bp.Sequential(np.array(3), (3,)), "a network got layers of ndarray: it takes a list"),
        (lambda: bp.JacobianRecords(3), "JacobianRecords got records of int"),
        (lambda: RECORDS.where(steps=np.array(2.5)), "where got steps=array.2.5.: it takes an integer"),
        (lambda: RECORDS.where(path=np.ones(2)), "where got path of ndarray: it takes a text"),
        (lambda: bp.lyapunov_exponents(RECORDS, lengths=[[1], [1, 2]]), "got lengths that is no array"),
        (lambda: build_model(10**30), "a model got its name of int: it takes the name of a model"),
        (lambda: build_model("lenet5", 28), "build_model got input_shape of int"),
        (lambda: build_model("lenet5", classes="x"), "build_model got classes='x'"),
        (lambda: build_model("x" * 5000 + ".py:f"), "a model got its file=.*it takes a path .*too long"),
        (lambda: load("digits", seed=-1), "load got seed=-1"),
        (lambda: load("x" * 5000), "load got source=.*it takes a path .*File name too long"),
        (lambda: bp.save_jacobians("x" * 5000, []), "cannot be written .File name too long"),
        (lambda: bp.Cell("c", gates=["h"], states=2, step=int), "a cell got states of int: .*states=.'h'."),
        (lambda: bp.Cell.built_in(["gru"]), "there is no built-in cell"),
        (lambda: vjp(saved(), GRADIENT[:2], input_gradient=np.ones(2)), "vjp got input_gradient=array"),
        (lambda: batches(GRADIENT, 2), "batches got split of ndarray: it takes a Split"),
        (lambda: batches(SPLIT, 2, augment=np.ones(2)), "the augmentation array"),
        (lambda: plan_scan(np.ones(2)), "plan_scan got chain of ndarray: it takes one of make_chain"),
        (lambda: bp.JacobianRecord(0, "", SCAN[1][0][0], SCAN[0], path=[1]), "got a list as path"),
        (lambda: load(b"digits"), "load got source=b'digits': it takes a path"),
        (lambda: forward(NET.layers[0], 3, GRADIENT), "forward got parameters of int"),
        (lambda: forward(NET.layers[0], PARAMETERS, GRADIENT.T, buffers="x"), "forward got buffers of str"),
        (lambda: forward(NET.layers[0], PARAMETERS, GRADIENT.T, device=np.ones(2)), "device array"),
    ],
)
def test_is_refused_by_name(call, words):
    with pytest.raises(bp.BppsaError, match=words):
        call()
