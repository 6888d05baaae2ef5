"""What every rank does in one start of mpiexec: pipelines of one stage a rank, against one process."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
from group_cases import raises
from mpi import play
from pipeline_networks import blocks, data

import bppsa_cupy as bp
from bppsa_cupy.data import load
from bppsa_cupy.data.dataset import Dataset, Split
from bppsa_cupy.distributed import Group
from bppsa_cupy.models import build_model
from bppsa_cupy.models.resnet import resnet
from bppsa_cupy.pipeline import SCHEDULES, Trace
from bppsa_cupy.pipeline.memory import stage_memory
from bppsa_cupy.pipeline.schedules import live_passes
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import Settings

#: Schedules with their options.
WAYS = (
    ("none", {}),
    ("stale", {}),
    ("stale", {"predict": True}),
    ("stale", {"non_pipelined_after": 7}),
    ("gpipe", {"micro_batches": 3}),
    ("1f1b", {"micro_batches": 4}),
    ("pipedream", {}),
    ("stale-1f1b", {}),
    ("zb-h1", {"micro_batches": 4}),
)
#: Where networks are cut, by the number of ranks.
PPVS = {1: (), 2: (2,), 3: (2, 3), 5: (1, 2, 3, 4)}


def outcome(make, ppv, schedule, group, dataset, make_optimizer=None, **options):
    """Rows, state dict and optimizer state of training."""
    pipeline = bp.Pipeline(make(), ppv, schedule, group, **options)
    if make_optimizer is None:
        optimizer = bp.SGD(pipeline.network.parameters, lr=0.05, momentum=0.9, weight_decay=1e-3)
    else:
        optimizer = make_optimizer(pipeline.network.parameters)
    settings = Settings(batch_size=4, epochs=2, seed=5, lr_schedule="cosine")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* with BatchNorm")
        rows = train(pipeline, dataset, optimizer, settings).rows
    return rows, pipeline.network.state_dict(), optimizer.state_dict()


def check(group: Group, *arguments, **options) -> None:
    make, ppv, schedule, dataset = arguments
    ours = outcome(make, ppv, schedule, group, dataset, **options)
    theirs = outcome(make, ppv, schedule, None, dataset, **options)
    assert ours[0] == theirs[0]  # on every rank
    assert ours[2]["steps"] == theirs[2]["steps"]
    for mine, other in ((ours[1], theirs[1]), (ours[2]["arrays"], theirs[2]["arrays"])):
        assert list(mine) == list(other)
        for name, array in mine.items():
            np.testing.assert_array_equal(array, other[name], err_msg=f"{schedule} {name}", strict=True)


def with_test(dataset):
    return replace(dataset, test=dataset.train)


def case_every_schedule(group: Group) -> None:
    """A block is cut in its middle by 2 and more ranks; the last batch is smaller than its micro-batches."""
    dataset = with_test(data(18, (1, 6, 6)))
    for schedule, options in WAYS:
        check(group, blocks, PPVS[group.size], schedule, dataset, **options)


def lenet5():
    return build_model("lenet5", device="host")


def case_several_stages_a_rank(group: Group) -> None:
    """A rank has stages that are not neighbours, of 4 or 5 all."""
    if group.size > 2:
        return
    drawn = with_test(data(18, (1, 6, 6)))
    for schedule in ("interleaved-1f1b", "interleaved-zb"):
        for micro in (2, 4):
            options = {"micro_batches": micro, "non_pipelined_after": 7}
            check(group, blocks, (1, 2, 4), schedule, drawn, ranks=group.size, **options)


def case_lenet5(group: Group) -> None:
    dataset = with_test(data(14, (3, 32, 32), 10))
    for schedule, options in WAYS[1:3]:
        check(group, lenet5, PPVS[group.size], schedule, dataset, **options)


def case_sequences_of_any_length(group: Group) -> None:
    def make():
        layers = [bp.LSTM(2, 3), bp.Linear(3, 4), bp.GRU(4, 3), bp.Linear(3, 4), bp.RNN(4, 2)]
        return bp.Sequential(layers, (None, 2), seed=1, dtype="float64", device="host")

    rng = np.random.default_rng(0)
    inputs, labels = rng.standard_normal((10, 5, 2)), rng.integers(0, 2, (10, 5))
    split = Split(inputs, labels, None, rng.integers(1, 6, 10))
    dataset = Dataset("drawn", (None, 2), 2, split, split, None)
    for schedule in ("stale", "pipedream"):
        check(group, make, PPVS[group.size], schedule, dataset, make_optimizer=bp.Adam)


def case_what_travels(group: Group) -> None:
    """Each batch sends one activation to the next rank and one gradient back, and its report."""
    before = group.messages.copy()
    trace = Trace()
    outcome(blocks, PPVS[group.size], "stale", group, data(18, (1, 6, 6)), trace=trace)
    sent = group.messages - before
    boundaries = bp.Placement(blocks(), PPVS[group.size]).boundaries
    arrays = [len(boundary.shapes) for boundary in boundaries]
    expected = {}
    if group.rank + 1 < group.size:
        expected[group.rank + 1] = 10 * arrays[group.rank + 1]
    if group.rank > 0:
        expected[group.rank - 1] = 10 * (arrays[group.rank] + 1)
    assert sent == expected
    assert len(trace.rows) == 30 and {row[0].rank for row in trace.rows} == {group.rank}


def case_what_is_refused(group: Group) -> None:
    more = (1, 2, 3, 4) if group.size < 5 else (1,)
    with raises(bp.DistributedError, f"{len(more) + 1} stages .* group {group.size} ranks: start"):
        bp.Pipeline(blocks(), more, "stale", group)
    pipeline = bp.Pipeline(blocks(), PPVS[group.size], "stale", group)
    with raises(bp.DistributedError, "for evaluation"):
        pipeline.network.train().forward(np.zeros((1, 1, 6, 6)))
    with raises(bp.DistributedError, "state_dict"):
        pipeline.network.backward(np.zeros((1, 3)))
    with raises(bp.DistributedError, "before bp.Pipeline"):
        pipeline.network.set_masks({})
    with raises(bp.ShapeError, "float64"):
        pipeline.network.eval().forward(np.zeros((1, 1, 6, 6), "complex64"))


def case_memory(group: Group) -> None:
    """What a rank holds, and has received, is what was accounted."""
    first, last = group.rank == 0, group.rank + 1 == group.size
    for schedule, kind in SCHEDULES.items():
        micro = 2 if kind.micro else 1
        if kind.interleaves and micro % group.size:
            continue
        pipeline = bp.Pipeline(lenet5(), PPVS[group.size], schedule, group, micro_batches=micro)
        optimizer = bp.SGD(pipeline.network.parameters, lr=1e-5, momentum=0.9)
        train(pipeline, data(48, (3, 32, 32), 10), optimizer, Settings(batch_size=4, epochs=1))
        dtype = pipeline.network.dtype
        own = stage_memory(pipeline.placement, schedule, 4, dtype, micro=micro, ranks=group.size)[group.rank]
        alive = live_passes(schedule, group.size, group.rank, micro, group.size)
        # The network's input comes from no rank, nor does the gradient that the loss gives.
        not_sent = alive * 4 // micro * 4 * (first * 3 * 32 * 32 + last * 10)
        expected = replace(own, received=own.received - not_sent, sent=0)
        found = pipeline.memory(optimizer)
        if kind.splits:  # of a parcel less where the next one comes when all halves are done
            assert expected.received * 0.5 <= found[group.rank].received <= expected.received
            expected = replace(expected, received=found[group.rank].received)
        assert found == {group.rank: expected}, schedule
    for schedule in ("gpipe", "1f1b"):  # of 2, 3 and 3 samples
        pipeline = bp.Pipeline(lenet5(), PPVS[group.size], schedule, group, micro_batches=3)
        optimizer = bp.SGD(pipeline.network.parameters, lr=1e-5, momentum=0.9)
        train(pipeline, data(48, (3, 32, 32), 10), optimizer, Settings(batch_size=8, epochs=1))
        own = stage_memory(pipeline.placement, schedule, 8, pipeline.network.dtype, micro=3)[group.rank]
        assert (
            0.5 * (own.total - own.sent)
            < pipeline.memory(optimizer)[group.rank].total
            <= own.total - own.sent
        )


def two_hundred_steps(group: Group) -> None:
    """200 steps of LeNet-5 on digits and of ResNet-8 by every schedule; rank 0 compares with one process.

    Not among the cases, for its time: `mpiexec -n 4 python pipeline_cases.py two_hundred_steps`.
    """
    drawn = data(320, (3, 8, 8), 10)
    drawn = replace(drawn, train=replace(drawn.train, inputs=drawn.train.inputs.astype("float32")))
    for name, dataset, batch, make in (
        ("lenet5", load("digits"), 32, digits_lenet5),
        ("resnet8", drawn, 16, resnet8),
    ):
        cuts = {2: (2,), 3: (1, 3), 4: (1, 2, 4), 5: (1, 2, 3, 4)}[group.size]
        for schedule, options in WAYS:
            settings = Settings(batch_size=batch, epochs=10, iterations=200, seed=5, lr_schedule="cosine")
            found = []
            for own in (group, None) if group.rank == 0 else (group,):
                pipeline = bp.Pipeline(make(), cuts, schedule, own, **options)
                optimizer = bp.SGD(pipeline.network.parameters, lr=0.01, momentum=0.9)
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", ".* with BatchNorm")
                    rows = train(pipeline, replace(dataset, test=None), optimizer, settings).rows
                found.append((rows, pipeline.network.state_dict()))
            if group.rank == 0:
                (rows, ours), (expected, theirs) = found
                assert rows == expected and len(rows) == 200
                for key, array in ours.items():
                    np.testing.assert_array_equal(array, theirs[key], err_msg=f"{schedule} {key}")
                told = f"{group.size} ranks, {name}, {schedule} {options or ''}: {len(ours)} arrays equal"
                print(told, flush=True)
            group.barrier()


def digits_lenet5():
    return build_model("lenet5", input_shape=(1, 32, 32), device="host")


def resnet8():
    return resnet(8, (3, 8, 8), device="host")


if __name__ == "__main__":
    play(globals())
