"""Objects of another class than a function takes are refused by name, before anything is done."""

import numpy as np
import pytest

import bppsa_cupy as bp
from bppsa_cupy.data import load
from bppsa_cupy.functional import forward
from bppsa_cupy.scan.primitive import plan_scan

NET = bp.Sequential([bp.Linear(3, 2)], (3,), device="host")
GRADIENT = np.ones((3, 2), "float32")
SCAN = GRADIENT, [(bp.Pattern.diagonal(3), np.ones(3))]
PARAMETERS = {"weight": np.ones((2, 3), "float32"), "bias": np.ones(2, "float32")}


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
        (lambda: bp.scan(GRADIENT, [], method=np.ones(2)), "method array.* a scan takes linear"),
        (lambda: bp.scan(*SCAN, injections=0), "scan got injections of int: it takes a list"),
        (lambda: bp.scan(*SCAN, group=0.0), "scan got group of float: it takes a bp.Group"),
        (lambda: bp.scan(*SCAN, levels=np.ones(2)), "levels .* were asked for"),
        (lambda: bp.cross_entropy(GRADIENT, [0, 1, 1], device="host"), "a loss got device of str"),
        (lambda: bp.mse_loss(GRADIENT, GRADIENT, device=np.ones(2)), "a loss got device of ndarray"),
        (lambda: bp.Adam(NET.parameters, groups=1j), "an optimizer got groups of complex"),
        (lambda: bp.SGD(NET.parameters, groups=None), "an optimizer got groups of NoneType"),
        (lambda: bp.prune(NET, 0.5, np.ones(2)), "prune got scope=array"),
        (lambda: bp.GELU(np.ones(2)), "GELU got approximate=array"),
        (lambda: bp.RNN(2, 3, nonlinearity=np.ones(2)), "RNN got nonlinearity=array"),
        (lambda: bp.GRU(2, 3, dropout=np.ones(2)), "GRU got dropout=array.*: it takes 0.0 alone"),
        (lambda: bp.GRU(2, 3, outputs=np.ones(2)), "GRU got outputs=array"),
        (lambda: bp.LSTM(2, 3, proj_size=np.ones(2)), "LSTM got proj_size=array.*: it takes 0 alone"),
        (lambda: bp.LSTM(2, 3, forward_method=np.ones(2)), "LSTM got forward_method=array"),
        (lambda: bp.CTRNN(2, 3, alpha="x"), "ctrnn got alpha='x': it takes a leak"),
        (lambda: bp.Conv2d(1, 1, 1, padding_mode=np.ones(0)), "got padding_mode=array"),
        (lambda: bp.AdaptiveAvgPool2d(np.ones(2, int)), "AdaptiveAvgPool2d got output_size=array"),
        (lambda: bp.Residual([], np.array(2.5)), "Residual got shortcut of ndarray"),
        (lambda: bp.Sequential([], (3,), device=np.ones(2)), "device array.* was asked for"),
        (lambda: NET.plan(schedules=np.ones(2)), "schedules .* were asked for: there are"),
        (lambda: NET.backward(GRADIENT, of=np.ones(2)), "a ndarray was given for a pass"),
        (lambda: NET.transposed_jacobians(of=np.ones(0)), "a ndarray was given for a pass"),
        (lambda: NET.load_state_dict({}, by_order=np.ones(2)), "load_state_dict got by_order=array"),
        (
            lambda: NET.load_state_dict({"a": 1.5, "b": "x"}, by_order=True),
            r"'a' has shape \(\), and '0.weight'",
        ),
        (lambda: NET.load_state_dict({"0.weight": dict, "0.bias": 3}), "cannot be read|of object"),
        (lambda: bp.Partition.balanced([1.0], 2**31), "got ranks=2147483648: .* at most 1048576"),
        (lambda: bp.Partition.equal(1, 2**40), "at most 1048576"),
        (lambda: NET.plan(progress=np.ones(2)), "plan got progress=array"),
        (lambda: plan_scan(np.ones(2)), "plan_scan got chain of ndarray: it takes one of make_chain"),
        (lambda: bp.JacobianRecord(0, "", SCAN[1][0][0], SCAN[0], path=[1]), "got a list as path"),
        (lambda: load(b"digits"), "load got source=b'digits': it takes a path"),
        (lambda: load(["digits"]), "load got source=.'digits'.: it takes a path"),
        (lambda: forward(NET.layers[0], 3, GRADIENT), "forward got parameters of int"),
        (lambda: forward(NET.layers[0], PARAMETERS, GRADIENT.T, buffers="x"), "forward got buffers of str"),
        (lambda: forward(NET.layers[0], PARAMETERS, GRADIENT.T, out=(0, 0)), "forward got out of tuple"),
        (lambda: forward(NET.layers[0], PARAMETERS, GRADIENT.T, device=np.ones(2)), "device array"),
    ],
)
def test_is_refused_by_name(call, words):
    with pytest.raises(bp.BppsaError, match=words):
        call()
