"""What every rank does in one start of mpiexec: scans and networks over ranks, against one process's.

Each rank makes the whole problem, runs its part, and compares it to the bit with the run of one process,
which it makes too.
"""

from __future__ import annotations

import numpy as np
import pipeline_cases
from group_cases import raises
from mpi import play
from scan_cases import METHODS, random_partition

import bppsa_cupy as bp
from bppsa_cupy.data import Dataset, Split
from bppsa_cupy.distributed import Group
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import Settings


def check_network(group: Group, make, x, methods, partition=None, plan_options=None, **options) -> None:
    """Outputs, gradients and input gradient of a network over ranks, by every method."""
    reference, net = make(), bp.distribute(make(), group, partition)
    if any(method not in ("bp", "auto") for method in methods):
        plan = net.plan(batch_size=len(x), **(plan_options or {}))
        net.use(plan)
        reference.use(reference.plan(batch_size=len(x), partition=net.partition, **(plan_options or {})))
    rng = np.random.default_rng(7)
    for method in methods:
        for input_gradient in (False, True):
            expected, got = reference.forward(x, **options), net.forward(x, **options)
            np.testing.assert_array_equal(got, expected, strict=True)
            gradient = rng.standard_normal(expected.shape).astype(expected.dtype)
            theirs = reference.backward(gradient, method, input_gradient)
            ours = net.backward(gradient, method, input_gradient)
            if method == "auto":
                theirs = reference.backward(gradient, net.last_backward.method, input_gradient)
                plan = net.plan_in_use
                paths = plan.critical_paths(len(x), net.partition) if plan is not None else {"bp": 0}
                assert net.last_backward.method == min(paths, key=paths.get)
            assert list(net.gradients) == list(reference.gradients)
            for name, array in net.gradients.items():
                np.testing.assert_array_equal(array, reference.gradients[name], err_msg=f"{method} {name}")
            if input_gradient:
                np.testing.assert_array_equal(ours, theirs, strict=True)
            else:
                assert ours is None
    state, expected_state = net.state_dict(), reference.state_dict()
    assert list(state) == list(expected_state)
    for name, array in state.items():
        np.testing.assert_array_equal(array, expected_state[name], strict=True)


def small(dtype="float32", **options):
    layers = [
        bp.Conv2d(1, 3, 3), bp.ReLU(), bp.Dropout(0.3), bp.MaxPool2d(2), bp.Conv2d(3, 4, 3, padding=1),
        bp.Flatten(), bp.Linear(36, 8), bp.Tanh(), bp.Flatten(), bp.Linear(8, 5),
    ]  # fmt: skip
    return bp.Sequential(layers, (1, 8, 8), seed=5, dtype=dtype, device="host", **options)


def case_every_partition_of_a_small_network(group: Group, dtype: str = "float64") -> None:
    for trial in range(2):
        x = np.random.default_rng(trial).standard_normal((2, 1, 8, 8)).astype(dtype)
        partition = random_partition(np.random.default_rng([trial, group.size]), 10, group.size)
        check_network(group, lambda: small(dtype), x, ("bp", *METHODS, "auto"), partition)


def case_a_plan_of_another_partition_is_refused(group: Group) -> None:
    first, last = bp.Partition((0, *[10] * group.size)), bp.Partition((*[0] * group.size, 10))
    net = bp.distribute(small(), group, first)
    net.use(net.plan(batch_size=2, schedules=["linear"]))
    if first != last:
        with raises(bp.PlanError, r"partition .*distributed with"):
            net.use(net.plan(batch_size=2, schedules=["linear"], partition=last))


def case_every_partition_in_float32(group: Group) -> None:
    case_every_partition_of_a_small_network(group, "float32")


def case_recurrent_networks(group: Group) -> None:
    def make():
        layers = [
            bp.LSTM(3, 4, num_layers=2), bp.Linear(4, 6), bp.ReLU(),
            bp.GRU(6, 5, bidirectional=True, outputs="last"), bp.Linear(10, 3),
        ]  # fmt: skip
        return bp.Sequential(layers, (None, 3), seed=2, dtype="float64", device="host")

    x = np.random.default_rng(0).standard_normal((3, 7, 3))
    check_network(group, make, x, ("bp", "auto"), lengths=np.array([7, 2, 5]))


def case_optimizers(group: Group) -> None:
    layers = [bp.Linear(4, 5), bp.GELU(), bp.Linear(5, 4), bp.LeakyReLU(), bp.Linear(4, 3)]
    x = np.random.default_rng(2).standard_normal((6, 4)).astype("float32")
    for make in (bp.SGD, bp.AdamW):
        reference = bp.Sequential(layers, (4,), seed=4, device="host")
        net = bp.distribute(bp.Sequential(layers, (4,), seed=4, device="host"), group)
        options = {"lr": 0.1, "weight_decay": 0.1}
        options |= {"momentum": 0.9} if make is bp.SGD else {}
        ours, theirs = make(net.parameters, **options), make(reference.parameters, **options)
        for step in range(3):
            for network, optimizer in ((net, ours), (reference, theirs)):
                network.backward(network.forward(x) - 1)
                optimizer.lr_factor = 1 / (1 + step)
                optimizer.step(network.gradients)
            states = ours.state_dict(), theirs.state_dict()
            for name, array in states[0]["arrays"].items():
                np.testing.assert_array_equal(array, states[1]["arrays"][name], strict=True)
            ours.load_state_dict(states[1])
        state = net.state_dict()
        for name, array in reference.state_dict().items():
            np.testing.assert_array_equal(state[name], array, strict=True)


def case_clipping(group: Group) -> None:
    """The norm and what is clipped by it, to the bit, wherever the layers lie."""
    rng = np.random.default_rng(3)
    for dtype in ("float32", "float64"):
        reference = bp.Sequential(
            [bp.Linear(40, 30), bp.Linear(30, 20), bp.Linear(20, 10)], (40,), dtype=dtype, device="host"
        )
        wanted = {name: rng.standard_normal(array.shape) for name, array in reference.gradients.items()}
        reference.gradients.assign(wanted)
        for _ in range(4):
            net = bp.distribute(reference, group, random_partition(rng, 3, group.size))
            net.gradients.assign(wanted)
            expected = reference.gradients.to_host()
            norm = bp.clip_grad_norm(net.gradients, 0.1)
            expected_norm = bp.clip_grad_norm(reference.gradients, 0.1)
            assert norm == expected_norm
            clipped = reference.gradients.to_host()
            for name, array in net.gradients.items():
                np.testing.assert_array_equal(array, clipped[name], strict=True)
            reference.gradients.assign(expected)


def case_a_callback_of_one_rank_stops_all(group: Group) -> None:
    """At the end of the second epoch of three steps, with every split."""

    def stop(network, row):
        return group.rank == group.size - 1 and row["step"] == 5

    layers = [bp.RNN(2, 4, outputs="last"), bp.Linear(4, 6), bp.Tanh(), bp.Linear(6, 3)]
    split = Split(np.ones((12, 6, 2)), np.arange(12) % 3, None)
    data = Dataset("made", (6, 2), 3, split, None, None)
    settings = Settings(epochs=4, batch_size=4, callbacks=[stop])
    for over in ("layers", "time", "batch", "pipeline"):
        net = bp.Sequential(layers, (6, 2), dtype="float64", device="host")
        if over != "pipeline":
            trained = net = bp.distribute(net, group, over=over)
        elif group.size == 2:
            trained = bp.Pipeline(net, (1,), "1f1b", group)
            net = trained.network
        else:
            continue
        assert len(train(trained, data, bp.SGD(net.parameters, lr=0.1), settings).rows) == 6


# ---- residual blocks and batch normalisation, whose buffers lie with their layers ----


def blocks(training=True, **options):
    """Blocks in a block, and batch normalisation inside and outside, whose running statistics have moved."""
    inner = bp.Residual([bp.Conv2d(2, 2, 3, padding=1), bp.BatchNorm2d(2), bp.ReLU()])
    body = [bp.Conv2d(2, 2, 3, padding=1), bp.Tanh(), inner, bp.Conv2d(2, 2, 1), bp.Dropout(0.2)]
    layers = [
        bp.Conv2d(1, 2, 1), bp.BatchNorm2d(2), bp.ReLU(), bp.Residual(body, [bp.Conv2d(2, 2, 1)]), bp.Tanh(),
        bp.Flatten(), bp.Linear(24, 4), bp.BatchNorm1d(4, momentum=None), bp.Linear(4, 3),
    ]  # fmt: skip
    net = bp.Sequential(layers, (1, 4, 3), seed=2, dtype="float64", device="host", **options)
    net.forward(images(3, 9))
    net.training = training
    return net


def images(batch, seed=0):
    return np.random.default_rng(seed).standard_normal((batch, 1, 4, 3))


def assert_equal(ours, theirs):
    assert list(ours) == list(theirs)
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], strict=True, err_msg=name)


def case_both_modes_by_every_method(group: Group) -> None:
    for trial, training in enumerate((True, False)):
        partition = random_partition(np.random.default_rng([trial, group.size]), 9, group.size)
        for cut in (None, partition):
            check_network(group, lambda t=training: blocks(t), images(3), ("bp", *METHODS, "auto"), cut)


def case_state_is_whole_and_loads_by_other_parts(group: Group) -> None:
    reference, net = blocks(), bp.distribute(blocks(), group)
    ours, theirs = (bp.SGD(n.parameters, lr=0.1, momentum=0.9) for n in (net, reference))
    for step in range(4):
        for n, optimizer in ((net, ours), (reference, theirs)):
            n.backward(n.forward(images(3, step)) - 1, "bp")
            optimizer.step(n.gradients)
        assert_equal(net.state_dict(), reference.state_dict())
        if step == 1:
            state, moved = net.state_dict(), ours.state_dict()
            other = random_partition(np.random.default_rng(group.size), 9, group.size)
            net = bp.distribute(blocks(), group, other)
            net.load_state_dict(state)
            net.random_state.update(reference.random_state)
            ours = bp.SGD(net.parameters, lr=0.1, momentum=0.9)
            ours.load_state_dict(moved)
    np.testing.assert_array_equal(net.eval().forward(images(2, 5)), reference.eval().forward(images(2, 5)))


def case_behind_the_steps_of_sequences(group: Group) -> None:
    def make():
        layers = [bp.RNN(2, 3, outputs="last"), bp.BatchNorm1d(3), bp.Linear(3, 2)]
        return bp.Sequential(layers, (None, 2), seed=1, dtype="float64", device="host")

    reference, net = make(), bp.distribute(make(), group, over="time", chunk=2)
    x = np.random.default_rng(3).standard_normal((4, 7, 2))
    for n in (net, reference):
        n.backward(n.forward(x) - 1)
    for name, array in reference.state_dict().items():
        np.testing.assert_allclose(net.state_dict()[name], array, rtol=1e-12, atol=1e-14)
    assert net.buffers["1.num_batches_tracked"] == 1
    before = [bp.RNN(2, 3), bp.Residual([bp.RNN(3, 3)]), bp.Linear(3, 2)]
    with raises(bp.DistributedError, r"layer 1, Residual.* cannot be split over time"):
        bp.distribute(bp.Sequential(before, (None, 2), device="host"), group, over="time")


if __name__ == "__main__":
    play({**vars(pipeline_cases), **globals()})
