"""What every rank does in one start of mpiexec: residual blocks, and batch normalisation, whose buffers lie
with their layers, against one process."""

from __future__ import annotations

import numpy as np
from group_cases import raises
from mpi import play
from ranks_cases import check_network
from scan_cases import METHODS, random_partition

import bppsa_cupy as bp
from bppsa_cupy.distributed import Group


def network(training=True, **options):
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
            check_network(group, lambda t=training: network(t), images(3), ("bp", *METHODS, "auto"), cut)


def case_blocks_without_parameters_before(group: Group) -> None:
    def make():
        block = bp.Residual([bp.Conv2d(1, 1, 3, padding=1), bp.ReLU(), bp.Conv2d(1, 1, 1)], [bp.Sigmoid()])
        return bp.Sequential([bp.Tanh(), block, bp.ReLU()], (1, 4, 3), dtype="float64", device="host")

    check_network(group, make, images(2), ("bp", *METHODS))


def case_a_rank_holds_its_own_layers_buffers(group: Group) -> None:
    net = bp.distribute(network(), group)
    own = [int(name.partition(".")[0]) in net.own for name in network().buffers]
    assert list(net.buffers) == [name for name, held in zip(network().buffers, own, strict=True) if held]
    assert net.state_dict()["7.num_batches_tracked"].dtype == np.int64


def case_state_is_whole_and_loads_by_other_parts(group: Group) -> None:
    whole, net = network(), bp.distribute(network(), group)
    ours, theirs = (bp.SGD(n.parameters, lr=0.1, momentum=0.9) for n in (net, whole))
    for step in range(4):
        for n, optimizer in ((net, ours), (whole, theirs)):
            n.backward(n.forward(images(3, step)) - 1, "bp")
            optimizer.step(n.gradients)
        assert_equal(net.state_dict(), whole.state_dict())
        if step == 1:
            state, moved = net.state_dict(), ours.state_dict()
            other = random_partition(np.random.default_rng(group.size), 9, group.size)
            net = bp.distribute(network(), group, other)
            net.load_state_dict(state)
            net.random_state.update(whole.random_state)
            ours = bp.SGD(net.parameters, lr=0.1, momentum=0.9)
            ours.load_state_dict(moved)
    np.testing.assert_array_equal(net.eval().forward(images(2, 5)), whole.eval().forward(images(2, 5)))
    folded = bp.fold_batch_norm(net)
    np.testing.assert_array_equal(folded.forward(images(2)), bp.fold_batch_norm(whole).forward(images(2)))


def case_what_does_not_fit_is_refused(group: Group) -> None:
    net = bp.distribute(network(), group)
    state = net.state_dict()
    with raises(bp.CheckpointError, "missing .'1.running_mean'"):
        net.load_state_dict({name: array for name, array in state.items() if name != "1.running_mean"})
    if 1 in net.own:
        with raises(bp.ShapeError, r"1.running_mean has shape \(2,\), got \(3,\)"):
            net.load_state_dict({**state, "1.running_mean": np.zeros(3)})
    plan = network(training=False).plan(batch_size=3, partition=net.partition)
    with raises(bp.PlanMismatchError, "mode evaluation in the plan, training in the network"):
        net.use(plan)


def case_behind_the_steps_of_sequences(group: Group) -> None:
    def make():
        layers = [bp.RNN(2, 3, outputs="last"), bp.BatchNorm1d(3), bp.Linear(3, 2)]
        return bp.Sequential(layers, (None, 2), seed=1, dtype="float64", device="host")

    whole, net = make(), bp.distribute(make(), group, over="time", chunk=2)
    x = np.random.default_rng(3).standard_normal((4, 7, 2))
    for n in (net, whole):
        n.backward(n.forward(x) - 1)
    for name, array in whole.state_dict().items():
        np.testing.assert_allclose(net.state_dict()[name], array, rtol=1e-12, atol=1e-14)
    assert net.buffers["1.num_batches_tracked"] == 1
    before = [bp.RNN(2, 3), bp.Residual([bp.RNN(3, 3)]), bp.Linear(3, 2)]
    with raises(bp.DistributedError, r"layer 1, Residual.* cannot be split over time"):
        bp.distribute(bp.Sequential(before, (None, 2), device="host"), group, over="time")


if __name__ == "__main__":
    play(globals())
