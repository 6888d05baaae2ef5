"""Arguments that are refused: the class of the error, and the two sides that its message names."""

import math

import numpy as np
import pytest
import scipy.sparse
import sympy
import torch
from refusals import assert_refused

import bppsa_cupy as bp
import bppsa_cupy.torch as bt
from bppsa_cupy.data import load
from bppsa_cupy.functional import forward, vjp
from bppsa_cupy.models import build_model
from bppsa_cupy.scan.primitive import plan_scan

TWO = np.ones(2)
NET = bp.Sequential([bp.Linear(3, 2)], (3,), device="host")
OUTPUT = np.ones((3, 2), "float32")
SCAN = OUTPUT, [(bp.Pattern.diagonal(3), np.ones(3))]
PARAMETERS = {"weight": np.ones((2, 3), "float32"), "bias": np.ones(2, "float32")}
X, STATE = np.zeros((2, 5, 3), "float32"), np.zeros((1, 2, 4), "float32")
DIAGONAL, EYE = bp.Pattern.diagonal(2), scipy.sparse.eye_array
K = sympy.Symbol("k")
LINEAR_CELL = bp.Cell(
    "linear", gates=["h"], states=["h"], recurrent=[], step=lambda x, u, s, p: s.h / 2 + x.h
)


def images(dtype="float32"):
    return bp.Sequential([bp.Flatten(), bp.Linear(16, 3)], (1, 4, 4), dtype=dtype, device="host")


def sequences(layer=None, steps=5):
    layers = [layer or bp.GRU(3, 4), bp.Linear(4, 2)]
    return bp.Sequential(layers, (steps, 3), dtype="float32", device="host")


def records():
    net = bp.Sequential([bp.RNN(2, 3)], (4, 2), dtype="float64", device="host")
    net.forward(np.ones((1, 4, 2)))
    return net.transposed_jacobians()


def saved():
    """What a pass through the linear layer keeps."""
    return forward(NET.layers[0], PARAMETERS, OUTPUT.T)[1]


def functional(x=X, gradient=None, layer=None, without=None, back=None, **options):
    """A pass of a layer on its own, back too where a gradient is given."""
    layer = layer or bp.GRU(3, 4)
    initial = layer.initialize(np.random.default_rng(0))
    parameters = {name: array.astype("float64") for name, array in initial.items() if name != without}
    y, saved = forward(layer, parameters, x, **options)
    return y if gradient is None else vjp(saved, gradient, **(back or {}))


def linear(**changed):
    return bp.linear_scan(**{"a": np.zeros((2, 4, 3)), "b": np.zeros((2, 4, 3)), **changed})


def pattern(shape=(2, 3), indptr=(0, 1, 3), indices=(2, 0, 1)):
    return bp.Pattern(shape, indptr, indices)


def cell(step=lambda x, u, s, p: {"h": sympy.tanh(x.h + u.h)}, **changed):
    return bp.Cell(**{"name": "leaky", "gates": ["h"], "states": ["h"], "step": step, **changed})


def blocks(*layers):
    return bp.Sequential(layers, (2, 6, 6), device="host")


#: Calls that are refused, by the class of their error, and what each message names.
REFUSED = {
    bp.ArgumentError: [
        (lambda: bp.scan(OUTPUT, 3), "int", "list"),
        (lambda: bp.Residual(3), "int", "list of layers"),
        (lambda: bp.Residual([], "x"), "str"),
        (lambda: bp.exact_max_pool2d(3, OUTPUT), "int"),
        (lambda: bp.scan(*SCAN, injections=0), "int", "list"),
        (lambda: bp.Sequential(np.array(3), (3,)), "ndarray", "list"),
        (lambda: forward(NET.layers[0], 3, OUTPUT), "int"),
        (lambda: forward(NET.layers[0], PARAMETERS, OUTPUT.T, buffers="x"), "str"),
        (lambda: vjp(saved(), OUTPUT[:2], input_gradient=TWO), "input_gradient=array"),
        (lambda: bp.Conv2d(3, 6, 3, groups=2), "groups=2", "3 input"),
        (lambda: bp.Conv2d(3, 6, 3, padding="full"), "padding='full'", "'same'"),
        (lambda: bp.Conv2d(3, 6, 3, 2, "same"), "padding='same'", "stride=2"),
        (lambda: bp.Conv2d(3, 6, 3, padding_mode="reflect"), "'reflect'", "'zeros'"),
        (lambda: bp.Dropout("0.5"), "p='0.5'", "from 0 to 1"),
        (lambda: bp.Dropout(10**400), "from 0 to 1"),
        (lambda: bp.Flatten(0), "axis 0"),
        (lambda: bp.GELU("erf"), "approximate='erf'", "'tanh'"),
        (lambda: bp.ELU(np.inf), "alpha=inf"),
        (lambda: bp.Softplus(0), "beta=0"),
        (lambda: bp.BatchNorm2d(2, eps=0.0), "eps=0.0"),
        (lambda: bp.Pad2d(1, "same"), "'same'", "'reflect'"),
        (lambda: bp.LSTM(3, 4, 0), "num_layers=0"),
        (lambda: bp.GRU(3, 4, dropout=0.5), "dropout=0.5"),
        (lambda: bp.RNN(3, 4, nonlinearity=["tanh"]), "['tanh']", "'relu'"),
        (lambda: bp.RNN(3, 4, outputs="first"), "outputs='first'", "'last'"),
        (lambda: bp.MinGRU(3, 4, candidate="log"), "candidate='log'"),
        (lambda: bp.MinGRU(3, 4, forward_method="newton"), "forward_method='newton'"),
        (lambda: bp.LRU(3, 4, r_min=0.9, r_max=0.5), "r_min=0.9", "r_max=0.5"),
        (lambda: sequences().forward(X, states={1: X}), "layer 1", "[0]"),
        (lambda: sequences().forward(X, states={"0": X}), "'0'", "[0]"),
        (lambda: sequences(bp.Linear(3, 4)).forward(X, states=STATE), "recurrent"),
        (lambda: sequences().forward(X, [5, 5], resets=X[..., 0] > 0), "lengths", "resets"),
        (lambda: sequences(bp.Linear(3, 4)).forward(X, resets=X[..., 0] > 0), "resets", "recurrent"),
        (lambda: sequences(bp.MinGRU(3, 4)).forward(X, resets=X[..., 0] > 0), "MinGRU", "GRU"),
        (
            lambda: sequences(bp.GRU(3, 4, forward_method="newton")).forward(X, resets=X[..., 0] > 0),
            "'newton'",
            "'auto'",
        ),
        (lambda: linear(reverse="yes"), "reverse='yes'"),
        (lambda: bp.scan(TWO, [EYE(2)], input_gradient="no"), "input_gradient='no'"),
        (lambda: bp.CellLayer("gru", 3, 5), "str"),
        (lambda: bp.LinearCellLayer(bp.Cell.built_in("gru"), 3, 4), "linear"),
        (lambda: build_model("lenet5", 28), "input_shape", "int"),
        (lambda: records().where(steps=np.array(2.5)), "steps=array(2.5)", "steps 0 to 3"),
        (lambda: functional(X.astype("d"), without="bias_hh_l0"), "['weight_ih_l0',", "'bias_hh_l0'"),
        (
            lambda: functional(X.astype("d"), np.zeros((2, 5, 4)), back={"method": "x"}),
            "method='x'",
            "'auto'",
        ),
        (lambda: functional(X[0].astype("d"), layer=bp.Linear(3, 2), states=X), "state", "recurrent"),
        (
            lambda: functional(
                X[0].astype("d"), np.zeros((5, 2)), bp.Linear(3, 2), back={"state_gradients": X}
            ),
            "gradients with respect to states",
            "recurrent",
        ),
        (lambda: functional(X.astype("d"), buffers={"mean": X}), "['mean']", "[]"),
        (lambda: linear(method="newton"), "method='newton'", "'chunked'"),
        (lambda: bp.scan(np.zeros(3), [np.eye(3)]), "J_1", "ndarray"),
        (lambda: bp.scan(TWO, [(DIAGONAL, [1, 2], [1, 2])]), "J_1", "tuple"),
        (lambda: bp.Pattern.from_scipy((None,)), "tuple"),
        (lambda: bt.CellLayer(LINEAR_CELL, 3, 4), "LinearCellLayer"),
    ],
    bp.ShapeError: [
        # ---- objects of another class ----
        (lambda: NET.load_state_dict({"0.weight": dict, "0.bias": 3}), "object"),
        # ---- digits that would be lost ----
        (lambda: images()(np.full((1, 1, 4, 4), 0.1)), "float32", "float64", "x.astype('float32')"),
        (lambda: images()(np.full((1, 1, 4, 4), 2**24 + 1)), "float32", "int64"),
        (lambda: images()(np.full((1, 1, 4, 4), 1e300)), "float32", "float64"),
        # ---- layers ----
        (lambda: bp.Conv2d(3, 6, 0), "kernel_size=0"),
        (lambda: bp.Conv2d(3, 6, (1, 2, 3)), "kernel_size=(1, 2, 3)"),
        (lambda: bp.Conv2d(3, 6, 3, mask=np.ones((6, 3))), "(6, 3)", "(6, 3, 3, 3)"),
        (lambda: bp.Linear(2, 1, mask=[[1, np.nan]]), "nan", "(0, 1)"),
        (lambda: bp.Linear(2, 1, mask=[["1", ""]]), "<U1", "numbers"),
        (lambda: bp.Linear(2, 2, mask=[[1], [1, 0]]), "mask", "array"),
        (lambda: bp.MaxPool2d(3, padding=2), "padding=(2, 2)", "kernel_size=(3, 3)"),
        (lambda: bp.Conv2d(3, 6, 5).output_shape((4, 32, 32)), "4 channels", "3"),
        (lambda: bp.Conv2d(3, 6, 3, dilation=2).jacobian((3, 5, 4)), "(3, 5, 4)", "5 by 5"),
        (lambda: bp.Conv2d(3, 6, 5, padding=2).output_shape((3, 0, 4)), "(3, 0, 4)", "at least 1"),
        (lambda: bp.Linear(7, 5).output_shape((6,)), "(6,)", "7"),
        (lambda: bp.MaxPool2d(3).output_shape((2, 2, 5)), "(2, 5)", "window"),
        (lambda: bp.Flatten(2, 3).output_shape((4, 5)), "axes 0 (the batch) to 2"),
        (lambda: bp.Flatten(-1, 1).output_shape((4, 5)), "1 <= start_dim"),
        (lambda: bp.BatchNorm1d(3).output_shape((3, 4, 4)), "BatchNorm1d(3)", "(3, 4, 4)"),
        (lambda: bp.Pad2d((1, 2)), "(1, 2)", "(left, right, top, bottom)"),
        (lambda: bp.Pad2d(2, "reflect").output_shape((1, 4, 2)), "(1, 4, 2)", "at least 3"),
        (lambda: bp.PadShortcut(1).output_shape((2, 6, 6)), "2 channels", "1"),
        (lambda: blocks(bp.Residual([bp.Conv2d(2, 3, 3)])), "layer 0", "(3, 4, 4)", "(2, 6, 6)"),
        (lambda: blocks(bp.Residual([bp.ReLU(), bp.Conv2d(3, 3, 3)])), "layer 0.body.1", "2 channels"),
        (lambda: blocks(bp.Residual([], [bp.BatchNorm2d(5)])), "layer 0.shortcut.0", "5"),
        (lambda: blocks(bp.Residual([bp.ReLU(), 3])), "layer 0.body.1", "3"),
        # ---- recurrent layers ----
        (lambda: bp.RNN(3, 0), "RNN", "hidden_size=0"),
        (lambda: bp.GRU(3, "4"), "hidden_size='4'"),
        (lambda: sequences(steps=0), "(0, 3)"),
        (lambda: bp.Sequential([bp.RNN(3, 4)], (5, 2)), "layer 0", "(5, 2)", "(T, 3)"),
        (lambda: bp.Sequential([bp.RNN(3, 4), bp.Flatten()], (None, 3)), "layer 1", "number of time steps"),
        (lambda: sequences().forward(X, lengths=[5, 6]), "sample 1", "6", "T = 5"),
        (lambda: sequences().forward(X, lengths=[5]), "(1,)", "(2,)"),
        (lambda: sequences().forward(X, lengths=[1.0, 2.0]), "float64"),
        (lambda: sequences().forward(X, resets=X[:, :4, 0] > 0), "(2, 4)", "(2, 5)"),
        (lambda: sequences().forward(X, resets=X[..., 0]), "float32", "bools"),
        (lambda: sequences().forward(X[:, :4]), "(2, 4, 3)", "(B, 5, 3)"),
        (lambda: sequences().forward(X, states={0: X[:1, :2]}), "(1, 2, 3)", "(1, 2, 4)"),
        (lambda: sequences().forward(X, states={0: STATE + np.float64(0.1)}), "float32", "float64"),
        (lambda: sequences().forward(X, states={0: (X, X)}), "2 arrays", "one array"),
        (lambda: sequences(bp.LSTM(3, 4)).forward(X, states={0: STATE}), "1 arrays", "pair"),
        (
            lambda: bp.Sequential([bp.LRU(3, 4)], (5, 3), device="host").forward(X[:1], states=STATE),
            "(1, 2, 4)",
            "(1, 1, 4)",
        ),
        (lambda: functional(X.astype("f2")), "GRU", "float16", "float32"),
        (lambda: functional(), "weight_ih_l0 of float64", "float32"),
        (lambda: functional(X[0].astype("d")), "(B, T, 3)", "x[None]"),
        (
            lambda: functional(X[0].astype("d"), layer=bp.GRU(3, 4, batch_first=False)),
            "(T, B, 3)",
            "x[:, None]",
        ),
        (lambda: functional(X.astype("d"), X), "(2, 5, 3)", "(2, 5, 4)"),
        # ---- linear scans ----
        (lambda: linear(b=np.zeros((2, 3))), "(2, 3)", "float32"),
        (lambda: linear(b=np.zeros((2, 4, 3), int)), "int64", "float64"),
        (lambda: linear(a=np.zeros((3, 4, 3))), "(3, 4, 3)", "(2 or 1, 4 or 1, 3)"),
        (lambda: linear(a=np.zeros(3, np.float32)), "float32", "float64"),
        (lambda: linear(h0=np.zeros(3)), "(3,)", "(2, 3)"),
        (lambda: linear(lengths=[5, 1]), "sample 0", "5"),
        (lambda: linear(resets=np.zeros(4)), "float64", "bools"),
        (lambda: linear(resets=np.zeros((3, 4), bool)), "(3, 4)", "(2, 4)"),
        (lambda: linear(chunk=0), "chunk=0"),
        # ---- scans ----
        (lambda: bp.scan(TWO, [EYE(3)]), "2 rows", "3 columns"),
        (lambda: bp.scan(np.zeros(3, int), [EYE(3)]), "int64"),
        (lambda: bp.scan(np.zeros((3, 1, 1)), []), "(d,)"),
        (lambda: bp.scan(TWO, [EYE(2)], injections=[]), "0 injections", "1"),
        (lambda: bp.scan(TWO, [EYE(2)], injections=[np.zeros(3)]), "injection 1", "(3,)"),
        (lambda: bp.scan(np.zeros((3, 2)), [(bp.Pattern.diagonal(3), np.zeros((3, 4)))]), "J_1", "(3, 4)"),
        (lambda: bp.scan(TWO, [EYE(2), EYE(4)]), "2", "4"),
        (lambda: bp.scan(TWO, [(DIAGONAL, np.array(["1", "2"]))]), "J_1", "<U1"),
        (lambda: bp.scan(TWO, [(DIAGONAL, np.array([1, 2], object))]), "J_1", "object"),
        (lambda: bp.scan(TWO, [(DIAGONAL, None)]), "J_1"),
        (lambda: bp.scan(TWO, [(DIAGONAL, np.ma.masked_array([1, 2], [0, 1]))]), "J_1", "masked"),
        (lambda: bp.scan(TWO, [EYE(2, dtype=complex)]), "complex128", "real"),
        (lambda: bp.scan(np.ma.masked_array([1.0, 2], [0, 1]), []), "masked"),
        (lambda: bp.scan(TWO, [EYE(2)], injections=[np.array(["1", "2"])]), "injection 1", "<U1"),
        # ---- patterns ----
        (lambda: bp.Pattern.dense("2", 3), "rows='2'", "at least 0"),
        (lambda: bp.Pattern.dense(2, 1.5), "columns=1.5"),
        (lambda: bp.Pattern.diagonal(-1), "rows=-1"),
        (lambda: DIAGONAL.to_scipy([1.0]), "(1,)", "(2,)"),
        (lambda: DIAGONAL.to_scipy(["1", "2"]), "<U1", "numbers"),
        (lambda: pattern(indices=[2**32, 0, 1]), "0 to 4294967296"),
        (lambda: pattern(indices=[1.7, 0, 1]), "float64", "integers"),
        (lambda: pattern((2, 3, 1)), "(rows, columns)"),
        (lambda: pattern(2), "(rows, columns)"),
        (lambda: bp.Pattern.diagonal(2**62), f"rows={2**62}", "at most"),
        (lambda: bp.Pattern.dense(2**31, 2**31), f"{2**31} columns", f"{2**59} entries"),
        (lambda: bp.Sequential([], (3,), dtype=torch.float32), "torch.float32", "float64"),
        (lambda: pattern(indptr=[0.0, 1.0, 3.0]), "float64", "integers"),
        (lambda: pattern(indptr=np.array([0, 2**63 + 1, 3], np.uint64)), "indptr decreases"),
        (lambda: pattern(indptr=np.array([0, 4, 3], np.uint64)), "indptr decreases"),
        (lambda: pattern(indptr=[0, 3]), "2 rows", "(2,)"),
        (lambda: pattern(indices=[(2, 0, 1)]), "(1, 3)"),
        (lambda: pattern(indptr=[1, 1, 3]), "from 1 to 3", "from 0"),
        (lambda: pattern(indptr=[0, 1, 2]), "from 0 to 2", "3"),
        (lambda: pattern(indices=[3, 0, 1]), "0 to 3", "3 columns"),
        (lambda: pattern(indices=[2, 1, 1]), "increase strictly"),
        (lambda: pattern(indices=[-1, 0, 1]), "from -1"),
        (lambda: pattern(indices=np.ma.array([2, 0, 1], mask=[1, 0, 0])), "masked"),
        (lambda: pattern((2, -3)), "columns=-3"),
        (lambda: pattern((2, 3.5)), "columns=3.5"),
        (lambda: pattern(indices=[True, False, True]), "bool"),
    ],
    bp.CellError: [
        (lambda: cell(name="a b"), "'a b'", "identifier"),
        (lambda: cell(gates=["1h"]), "'1h'", "identifier"),
        (lambda: cell(parameters=["lambda"]), "'lambda'", "identifier"),
        (lambda: cell(gates="h"), "'h'", "gates=['h']"),
        (lambda: cell(recurrent=[np.ones(3)]), "recurrent", "array"),
        (lambda: cell(gates=[]), "no gates"),
        (lambda: cell(states=[]), "no states"),
        (lambda: cell(states=2), "states", "int"),
        (lambda: cell(states=["h", "h"]), "'h'", "twice"),
        (lambda: cell(gates=["h", "z"]), "x.z", "'z'"),
        (lambda: cell(parameters=["q"]), "p.q", "'q'"),
        (lambda: cell(recurrent=["q"]), "['q']", "h"),
        (lambda: cell(recurrent=[]), "u.h", "none"),
        (lambda: cell(lambda x, u, s, p: x.z), "x.z", "h"),
        (lambda: cell(lambda x, u, s, p: p.q), "p.q", "none"),
        (lambda: cell(lambda x, u, s, p: {"c": x.h}), "states h", "sets c"),
        (lambda: cell(lambda x, u, s, p: {"h": x.h, "c": x.h}), "states h", "sets h, c"),
        (lambda: cell(lambda x, u, s, p: (x.h, x.h)), "1 states", "2"),
        (lambda: cell(lambda x, u, s, p: x.h[0]), "not subscriptable", "SymPy"),
        (lambda: cell(lambda x, u, s, p: np.tanh(x.h)), "SymPy"),
        (lambda: cell(lambda x, u, s, p: math.tanh(x.h)), "float", "SymPy"),
        (lambda: cell(lambda x, u, s, p: x.h if x.h > 0 else 0), "truth value", "Piecewise"),
        (lambda: cell(lambda x, u, s, p: "x.h"), "'x.h'", "SymPy"),
        (lambda: cell(lambda x, u, s, p: None), "None", "SymPy"),
        (lambda: cell(lambda x, u, s, p: x.h > 0), "x.h > 0", "scalar"),
        (lambda: cell(lambda x, u, s, p: sympy.Matrix([x.h])), "scalar"),
        (lambda: cell(lambda x, u, s, p: x.h * K), "k*x.h", "x, u, s or p"),
        (lambda: cell(lambda x, u, s, p: x.h * sympy.IndexedBase("w")[1]), "x.h*w[1]", "w,"),
        (lambda: cell(lambda x, u, s, p: sympy.MatrixSymbol("W", 2, 2)[0, 1] + x.h), "W[0, 1]", "W,"),
        (lambda: cell(lambda x, u, s, p: sympy.Sum(x.h, (K, 0, 3))), "Sum(x.h", "elementwise"),
        (lambda: cell(lambda x, u, s, p: sympy.Function("f")(x.h)), "f(x.h)", "elementwise"),
        (lambda: cell(lambda x, u, s, p: sympy.gamma(x.h)), "gamma(x.h)"),
        (lambda: cell(lambda x, u, s, p: x.h * sympy.I), "I*x.h", "real"),
        (lambda: cell(lambda x, u, s, p: x.h * float("nan")), "nan", "finite"),
        (lambda: cell(lambda x, u, s, p: x.h + float("inf")), "oo"),
        (lambda: cell(lambda x, u, s, p: sympy.Piecewise((x.h, x.h > 0))), "True"),
        (lambda: bp.Cell.built_in(["gru"]), "gru"),
    ],
    bp.BppsaError: [
        (lambda: build_model(10**30), "int", "name of a model"),
        (lambda: build_model("lenet5", classes="x"), "classes='x'"),
        (lambda: build_model("x" * 5000 + ".py:f"), "file=", "too long"),
    ],
    bp.PlanError: [
        (lambda: bp.scan(OUTPUT, [], plan=3), "int", "plan_scan"),
        (lambda: bp.scan(OUTPUT, [], method=TWO), "array", "linear"),
        (lambda: bp.scan(*SCAN, levels=TWO), "levels"),
        (lambda: NET.plan(schedules=TWO), "schedules", "linear"),
        (lambda: NET.plan(schedules="linear"), "str", "list"),
        (lambda: plan_scan(TWO), "ndarray", "make_chain"),
        (lambda: bp.scan(TWO, [EYE(2)], method="bp"), "linear"),
    ],
    bp.DataError: [
        (lambda: load("digits", seed=-1), "seed=-1"),
        (lambda: load("x" * 5000), "too long"),
    ],
    bp.DeviceError: [
        (lambda: bp.Sequential([], (3,), device=TWO), "array"),
        (lambda: forward(NET.layers[0], PARAMETERS, OUTPUT.T, device=TWO), "array"),
    ],
    bp.CheckpointError: [
        (lambda: NET.load_state_dict({"a": 1.5}, by_order=True), "1 arrays", "2"),
    ],
    bp.JacobianFileError: [
        (lambda: bp.save_jacobians("x" * 5000, []), "too long"),
    ],
}
ROWS = [(kind, *row) for kind, rows in REFUSED.items() for row in rows]


@pytest.mark.parametrize(
    "kind, call, named", [(*row[:2], row[2:]) for row in ROWS], ids=[row[2] for row in ROWS]
)
def test_is_refused(kind, call, named):
    assert_refused(call, kind, *named)
