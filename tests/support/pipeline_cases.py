"""What every rank does in one start of mpiexec: pipelines of one stage a rank, against one process."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
from group_cases import raises
from mpi import play
from pipeline_networks import blocks, data

import bppsa_cupy as bp
from bppsa_cupy.data.dataset import Dataset, Split
from bppsa_cupy.distributed import Group
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import Settings

#: Schedules with their options.
WAYS = (
    ("none", {}),
    ("stale", {}),
    ("stale", {"non_pipelined_after": 7}),
    ("gpipe", {"micro_batches": 3}),
    ("1f1b", {"micro_batches": 4}),
    ("pipedream", {}),
    ("stale-1f1b", {}),
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


def case_a_trace_holds_the_actions_of_the_rank(group: Group) -> None:
    trace: list = []
    outcome(blocks, PPVS[group.size], "stale", group, data(18, (1, 6, 6)), trace=trace)
    assert len(trace) == 30 and {row[0].stage for row in trace} == {group.rank}


def case_what_is_refused(group: Group) -> None:
    more = (1, 2, 3, 4) if group.size < 5 else (1,)
    with raises(bp.DistributedError, f"{len(more) + 1} stages, but the group has {group.size} ranks"):
        bp.Pipeline(blocks(), more, "stale", group)


if __name__ == "__main__":
    play(globals())
