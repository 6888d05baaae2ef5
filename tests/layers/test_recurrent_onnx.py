"""ONNX's node cases for RNN, GRU and LSTM, where its conventions are ours.

The expected values are those of ONNX 1.23's node tests (onnx/backend/test/case/node), by their names, and
of its reference evaluator for both directions with drawn weights. A GRU's conventions agree where W_hn h +
b_hn is formed before the reset gate (`linear_before_reset = 1`), or where one step from state 0 without b_hn
leaves no difference; ONNX's other GRU cases, and peepholes, are left out. Gates lie in another order: z, r,
h of a GRU, i, o, f, c of an LSTM.
"""

import numpy as np
import pytest
from tolerances import assert_close

import bppsa_cupy as bp

#: Where ONNX keeps each of our gates.
GATES = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 2, 3, 1)}

#: Inputs of the node cases, (T, B, F).
ONE_STEP = [[[1, 2], [3, 4], [5, 6]]]
WIDE_STEP = [[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]
THREE_STEPS = [[[1, 2]], [[3, 4]], [[5, 6]]]

#: name: layer, input, H, direction, weight of each direction, bias, final h of each direction and sample
#: (one number for all H), and final c.
UNIFORM = {
    "simple_rnn_defaults": ("RNN", ONE_STEP, 4, "forward", [0.1], 0, [[0.29131263, 0.6043678, 0.800499]]),
    "simple_rnn_with_initial_bias": (
        ("RNN", WIDE_STEP, 5, "forward", [0.1], 0.1, [[0.6043678, 0.9216685, 0.9866143]])
    ),
    "simple_rnn_batchwise": ("RNN", ONE_STEP, 4, "forward", [0.5], 0, [[0.9051482, 0.9981779, 0.9999666]]),
    "simple_rnn_reverse": ("RNN", THREE_STEPS, 4, "reverse", [0.1], 0, [[0.54270303]]),
    "simple_rnn_bidirectional": (
        ("RNN", THREE_STEPS, 4, "bidirectional", [0.5, 2.0], 0, [[0.9999994], [1.0]])
    ),
    "gru_defaults": ("GRU", ONE_STEP, 5, "forward", [0.1], 0, [[0.12397028, 0.20053661, 0.19991653]]),
    "gru_with_initial_bias": (
        ("GRU", WIDE_STEP, 3, "forward", [0.1], 0.1, [[0.20053661, 0.15482338, 0.07484276]])
    ),
    "gru_batchwise": ("GRU", ONE_STEP, 6, "forward", [0.2], 0, [[0.19030015, 0.1751368, 0.09733082]]),
    "lstm_defaults": ("LSTM", ONE_STEP, 3, "forward", [0.1], 0, [[0.095241204, 0.25606447, 0.40323776]]),
    "lstm_with_initial_bias": (
        ("LSTM", WIDE_STEP, 4, "forward", [0.1], 0.1, [[0.25606447, 0.5367278, 0.6672132]])
    ),
    "lstm_batchwise": ("LSTM", ONE_STEP, 7, "forward", [0.3], 0, [[0.3336926, 0.6223932, 0.718579]]),
    "lstm_reverse": ("LSTM", THREE_STEPS, 3, "reverse", [0.1], 0, [[0.40412503]], [[0.7970233]]),
    "lstm_bidirectional": (
        *("LSTM", THREE_STEPS, 3, "bidirectional", [0.5, 2.0], 0),
        *([[0.9902244], [0.995047]], [[2.712913], [2.999977]]),
    ),
}

#: Both directions with drawn weights: final h, then final c, (D, B, H), and the output at t = 1.
DRAWN = {
    "RNN": (
        ((0.88337845, -0.9999319, -0.8912384, 0.44456246, -0.93181604, -0.98665977, 0.94443136, -0.9999487),),
        (0.88362867, -0.37399763, 0.76058567, 0.9682718, -0.81518847, -0.30058947, -0.96362, -0.9545207),
    ),
    "GRU": (
        ((0.82378, 0.99316806, 0.7137611, 0.57490015, 0.96750844, 0.1964614, 0.9468291, -0.69199514),),
        (1.5040742, 0.76628315, 0.72247994, 0.546715, 0.94293875, 0.3003233, 0.92199624, -0.3148723),
    ),
    "LSTM": (
        (
            (0.7340708, 0.31909147, 0.1120344, -0.01275213, -0.11916836, 0.3388092, -0.17744918, 0.54682827),
            (3.5872076, 2.2463722, 0.19074775, -0.0802715, -0.21804228, 0.4009737, -0.29401267, 0.7456639),
        ),
        (0.33679935, 0.13133557, 0.00437671, 0.2792789, -0.3323507, 0.5894702, -0.35155576, 0.374972),
    ),
}
#: T, B, F and H of arrays drawn by NumPy's RandomState(0) in the order x, W, R, B, initial h, initial c.
DRAWN_SIZES = (4, 2, 3, 2)


def run(op, x, w, r, b, states=None):
    """ONNX's node on our layer: x (T, B, F), w (D, G H, F), r (D, G H, H), b (D, 2 G H), states (D, B, H).
    Gives output (T, D, B, H) and the list of final states, in ONNX's float32."""
    x, w, r, b = (np.asarray(array, np.float64) for array in (x, w, r, b))
    directions, hidden = w.shape[0], r.shape[2]
    steps, batch, features = x.shape
    layer = getattr(bp, op)(features, hidden, bidirectional=directions == 2)
    net = bp.Sequential([layer], (steps, features), dtype="float64", device="host")

    def reorder(array):
        gates = np.split(array, len(GATES[op]))
        return np.concatenate([gates[place] for place in GATES[op]])

    for d, suffix in zip(range(directions), ("_l0", "_l0_reverse"), strict=False):
        of_input, of_state = np.split(b[d], 2)
        for name, array in (
            ("weight_ih", w[d]),
            ("weight_hh", r[d]),
            ("bias_ih", of_input),
            ("bias_hh", of_state),
        ):
            net.parameters[f"0.{name}{suffix}"][...] = reorder(array)
    given = None if states is None else {0: states if op == "LSTM" else states[0]}
    y = net.forward(np.ascontiguousarray(x.swapaxes(0, 1)), states=given)
    final = net.last_pass.states[0]
    output = np.asarray(y, np.float32).reshape(batch, steps, directions, hidden).transpose(1, 2, 0, 3)
    return output, [np.array(part, np.float32) for part in (final if op == "LSTM" else (final,))]


@pytest.mark.parametrize("name", UNIFORM)
def test_uniform_weights(name):
    op, x, hidden, direction, weights, bias, *expected = UNIFORM[name]
    rows, features = len(GATES[op]) * hidden, len(x[0][0])
    # A node that goes backward alone is one half of a layer that goes both ways.
    scales = np.array(weights * 2 if direction == "reverse" else weights)[:, None, None]
    directions = len(scales)
    b = np.concatenate([np.full((directions, rows), bias), np.zeros((directions, rows))], axis=1)
    _, final = run(op, x, scales * np.ones((1, rows, features)), scales * np.ones((1, rows, hidden)), b)
    kept = slice(1, 2) if direction == "reverse" else slice(None)
    for actual, wanted in zip(final, expected, strict=False):
        assert_close(actual[kept], np.repeat(np.array(wanted)[:, :, None], hidden, axis=2), length=hidden)


@pytest.mark.parametrize("op", DRAWN)
def test_drawn_weights_in_both_directions(op):
    steps, batch, features, hidden = DRAWN_SIZES
    draw, rows = np.random.RandomState(0).randn, len(GATES[op]) * hidden
    x, w, r = draw(steps, batch, features), draw(2, rows, features), draw(2, rows, hidden)
    b, h, c = draw(2, 2 * rows), draw(2, batch, hidden), draw(2, batch, hidden)
    finals, middle = DRAWN[op]
    output, final = run(op, x, w, r, b, (h, c))
    for actual, wanted in zip(final, finals, strict=True):
        assert_close(actual, np.reshape(wanted, actual.shape), length=steps * hidden)
    assert_close(output[1], np.reshape(middle, output[1].shape), length=steps * hidden)


def test_rnn_seq_length():
    draw = np.random.RandomState(0).randn
    w, r, b = draw(1, 5, 3), draw(1, 5, 5), np.concatenate([draw(1, 5), draw(1, 5)], axis=1)
    _, (final,) = run("RNN", np.arange(1.0, 19).reshape(2, 3, 3), w, r, b)
    assert_close(final, np.array([[[1, 1, 0.9999989, 1, 1], [1, 1, 0.99999994, 1, 1], [1] * 5]]), length=5)
