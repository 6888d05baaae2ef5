"""What every rank does in one start of mpiexec: networks whose steps lie on several ranks, against one's."""

from __future__ import annotations

import numpy as np
from cell_cases import PARTLY
from group_cases import raises
from mpi import play

import bppsa_cupy as bp
from bppsa_cupy.distributed import Group
from bppsa_cupy.errors import DistributedError

CELLS = (bp.RNN, bp.GRU, bp.LSTM)


def network(layers, features, dtype="float64"):
    """A network over sequences of any length."""
    return bp.Sequential(layers, (None, features), seed=1, dtype=dtype, device="host")


def assert_close(ours, theirs, dtype, label):
    """Equal up to the rounding of sums in another order."""
    bound = {"float32": 2e-5, "float64": 1e-13}[np.dtype(dtype).name]
    scale = max(1.0, float(np.abs(theirs).max(initial=0.0)))
    assert float(np.abs(ours - theirs).max(initial=0.0)) <= bound * scale, label


def states_of(network):
    """Every final state, and gradient by an initial state, of the last pass."""
    current = network.last_pass
    return [
        np.asarray(part)
        for states in (current.states, current.state_gradients)
        for index in sorted(states)
        for part in (states[index] if isinstance(states[index], tuple) else (states[index],))
    ]


def check(group, make, x, methods, chunk, exact, initial=None, final_gradient=None, **options):
    """Outputs, states and gradients by every method.

    exact  outputs and states to the bit; not behind a Linear over steps, whose GEMM has fewer rows here
    """
    reference, net = make(), bp.distribute(make(), group, over="time", chunk=chunk)
    rng = np.random.default_rng(3)
    for method in methods:
        expected = reference.forward(x, states=initial, **options)
        got = net.forward(x, states=initial, **options)
        assert got.shape == expected.shape and got.dtype == expected.dtype
        if exact:
            np.testing.assert_array_equal(got, expected)  # states go forward serially on both sides
        else:
            assert_close(got, expected, x.dtype, "output")
        gradient = rng.standard_normal(expected.shape).astype(expected.dtype)
        theirs = reference.backward(gradient, method, True, state_gradients=final_gradient)
        ours = net.backward(gradient, method, True, state_gradients=final_gradient)
        serial = exact and method in ("bp", "linear")
        for actual, wanted in [(ours, theirs), *zip(states_of(net), states_of(reference), strict=True)]:
            if serial:
                np.testing.assert_array_equal(actual, wanted)
            else:
                assert_close(actual, wanted, x.dtype, method)
        for name, array in net.gradients.items():
            assert_close(array, reference.gradients[name], x.dtype, f"{method} {name}")
        again = {name: array.copy() for name, array in net.gradients.items()}
        net.forward(x, states=initial, **options)
        net.backward(gradient, method, state_gradients=final_gradient)
        for name, array in net.gradients.items():
            np.testing.assert_array_equal(array, again[name])
    group.agree(gradients=net.gradients.flat.tobytes())


def case_cells_and_ways(group: Group) -> None:
    for number, layer in enumerate(CELLS):
        for dtype in ("float32", "float64"):
            rng = np.random.default_rng(number)
            x = rng.standard_normal((3, 23, 2)).astype(dtype)

            def make(layer=layer, dtype=dtype):
                layers = [layer(2, 4, num_layers=2, outputs="last"), bp.Linear(4, 3)]
                return network(layers, 2, dtype)

            check(group, make, x, ("bp", "blelloch", "auto"), 3, True)


def case_outputs_at_every_step(group: Group) -> None:
    x = np.random.default_rng(0).standard_normal((2, 31, 3))

    def make():
        cell = bp.CellLayer(PARTLY["partly"], 4, 4)  # with a gate that is not recurrent
        layers = [bp.GRU(3, 5), bp.Linear(5, 4), bp.Tanh(), cell, bp.LSTM(4, 3), bp.Linear(3, 2)]
        return network(layers, 3)

    check(group, make, x, ("bp", "hybrid", "auto"), 4, False)


def case_lengths_and_states(group: Group) -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((4, 26, 3))
    lengths = np.array([26, 1, 9, 17])
    for both in (False, True):
        directions = 2 if both else 1

        def make(both=both):
            layers = [bp.GRU(3, 4, num_layers=1 + both, bidirectional=both, outputs="last")]
            layers.append(bp.Linear(8 if both else 4, 2))
            return network(layers, 3)

        shape = directions * (1 + both), 4, 4
        state, final = {0: rng.standard_normal(shape)}, {0: rng.standard_normal(shape)}
        check(group, make, x, ("bp", "blelloch"), 3, True, state, final, lengths=lengths)


def case_few_steps(group: Group) -> None:
    """Every rank has a chunk, whatever length was asked for; fewer steps than ranks are refused."""

    def make():
        return network([bp.RNN(3, 4), bp.Linear(4, 2)], 3)

    for steps in (group.size, group.size + 2):
        x = np.random.default_rng(steps).standard_normal((2, steps, 3))
        for chunk in (None, 4):
            check(group, make, x, ("bp", "blelloch"), chunk, False)
    if group.size > 1:
        net = bp.distribute(make(), group, over="time")
        with raises(DistributedError, f"1 steps cannot be split over {group.size} ranks"):
            net.forward(np.zeros((2, 1, 3)))


def case_maps_to_the_bit(group: Group) -> None:
    """By chunks of one length, the gradients by states are those of one process to the bit."""
    for cell in CELLS:
        for dtype in ("float32", "float64"):

            def make(cell=cell, dtype=dtype):
                return bp.Sequential(
                    [cell(2, 4, outputs="last")], (None, 2), seed=1, dtype=dtype, device="host"
                )

            x = np.random.default_rng(1).standard_normal((2, 40, 2)).astype(dtype)
            reference = make()
            gradient = np.ones((2, 4), dtype)
            reference.forward(x)
            theirs = reference.backward(gradient, "blelloch", True)
            chunk = int(reference.last_backward.backward_ways[0].split("chunks of ")[1].split()[0])
            net = bp.distribute(make(), group, over="time", chunk=chunk)
            net.forward(x)
            ours = net.backward(gradient, "blelloch", True)
            np.testing.assert_array_equal(ours, theirs)
            for actual, wanted in zip(states_of(net), states_of(reference), strict=True):
                np.testing.assert_array_equal(actual, wanted)
            if group.size > 1:
                assert f"chunks of {chunk} on" in net.last_backward.backward_ways[0]


def case_a_boundary_that_is_not_finite_sends_all_ranks_back_serially(group: Group) -> None:
    """Jacobians of 4 leave float32 within 64 steps, of which the last ranks have none yet."""
    layers = [bp.RNN(1, 2, outputs="last")]
    net = bp.distribute(network(layers, 1, "float32"), group, over="time", chunk=10)
    net.parameters["0.weight_hh_l0"][...] = 4 * np.eye(2)
    x, gradient = np.zeros((2, 100, 1), np.float32), np.ones((2, 2), np.float32)
    for name in net.parameters:
        if "bias" in name:
            net.parameters[name][...] = 0
    net.forward(x)
    ours = net.backward(gradient, "blelloch", True).copy()
    ran = net.last_backward.backward_ways[0]
    theirs = net.backward(gradient, "bp", True)
    np.testing.assert_array_equal(ours, theirs)
    assert not np.isfinite(theirs).all() and np.isfinite(theirs).any()
    assert group.size == 1 or "not finite: run again serially" in ran


def case_what_cannot_be_split(group: Group) -> None:
    for layers, words in (
        ([bp.Linear(3, 2)], "no recurrent layer"),
        ([bp.RNN(3, 2), bp.Dropout(0.5)], "layer 1, Dropout.*cannot be split over time"),
        ([bp.MinGRU(3, 2), bp.RNN(2, 2)], "layer 0, MinGRU.*cannot be split over time"),
    ):
        with raises(DistributedError, words):
            bp.distribute(network(layers, 3), group, over="time")


if __name__ == "__main__":
    play(globals())
