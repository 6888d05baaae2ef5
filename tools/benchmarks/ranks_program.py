"""What every rank of `bppsa-bench ranks` and `pipeline` runs: the same work by one process and over the
ranks.

Rank 0 works alone while the others sleep in a barrier, then all work; it writes the rows that it measured.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.data import Dataset, Split
from bppsa_cupy.data.sequences import make_bitstreams
from bppsa_cupy.distributed import BatchSequential, Group, accumulate, distribute, guard
from bppsa_cupy.distributed.time_network import TimeSequential
from bppsa_cupy.layers import GRU, RNN, Linear
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.pipeline import SCHEDULES, Pipeline
from bppsa_cupy.pipeline.run import TraceRow
from bppsa_cupy.plan import Partition
from bppsa_cupy.tools.benchmarks.train import make_batch, make_network
from bppsa_cupy.tools.models import layer_seconds, placed
from bppsa_cupy.training.captured import CapturedStep
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.losses import cross_entropy
from bppsa_cupy.training.optimizers import SGD
from bppsa_cupy.training.settings import Settings

#: Seconds between the call and the moment at which all ranks begin.
LEAD = 2e-3
#: The arguments of `harness.timed_row`.
Rows = list[dict[str, Any]]


def keep_to_core(group: Group) -> None:
    """Let each rank work on its own core, if there are as many: two that the system puts on one take twice as
    long until it moves them."""
    cores = sorted(os.sched_getaffinity(0))
    if group.size <= len(cores):
        os.sched_setaffinity(0, {cores[group.rank]})


def at_once(group: Group, work: Callable[[], Any]) -> float:
    """Seconds from a moment at which all ranks begin to the end of the last. The ranks are on one machine,
    and so on one clock."""
    group.barrier()
    begin = np.array([time.perf_counter() + LEAD])
    group.broadcast(begin)
    while time.perf_counter() < begin[0]:
        pass
    work()
    ends = np.empty(group.size)
    group.allgather(np.array([time.perf_counter()]), ends)
    return float(ends.max() - begin[0])


def in_turn(
    group: Group, alone: Callable[[], Any], together: Callable[[], Any], repeats: int
) -> tuple[list[float], list[float]]:
    """Samples of all ranks' work, and of rank 0's work while the others sleep."""
    mine: list[float] = []
    ours: list[float] = []
    for repeat in range(repeats + 1):
        group.barrier()
        start = time.perf_counter()
        if group.rank == 0:
            alone()
        seconds = time.perf_counter() - start
        shared = at_once(group, together)
        if repeat:  # the first wakes what sleeps
            mine.append(seconds)
            ours.append(shared)
    return ours, mine


def row(
    case: str,
    quantity: str,
    ours: list[float],
    theirs: list[float],
    against: str = "one process",
    note: str = "",
) -> dict[str, Any]:
    """A row of two sides' samples."""
    names = {"case": case, "quantity": quantity, "against": against, "note": note or None}
    return {**names, "ours": ours, "theirs": theirs}


def require_equal(network: Sequential, net: Sequential, tolerance: float) -> None:
    """Raise AssertionError where a rank's gradients are not those of the whole network."""
    for name, array in net.gradients.items():
        norm, difference = map(np.linalg.norm, (network.gradients[name], array - network.gradients[name]))
        assert difference <= tolerance * norm, name


def over_layers(
    group: Group, model: str, prune: float | None, batch_size: int, repeats: int, **_: Any
) -> Rows:
    """A backward pass."""
    network = make_network(model, prune, {"device": "host"})
    x, labels = make_batch(network, batch_size)
    _, gradient = cross_entropy(network.forward(x), labels)
    # Every rank uses rank 0's measurement.
    times = layer_seconds(network, len(x))
    group.broadcast(times)
    partition = Partition.balanced(times, group.size)
    net = distribute(network, group, partition)
    network.forward(x)
    net.forward(x)
    pruned = f" pruned by {100 * prune:g} %" if prune else ""
    backward = partial(network.backward, gradient), partial(net.backward, gradient)
    samples = in_turn(group, *backward, repeats)
    for each in backward:
        each()
    require_equal(network, net, 0.0)
    case = f"{model}{pruned} B={batch_size}, {group.size} ranks, bp"
    note = f"layers from {', '.join(map(str, partition.bounds[:-1]))}; gradients equal to the bit"
    return [row(case, "backward", *samples, note=note)]


def over_batch(group: Group, name: str, batch_size: int, repeats: int, meeting: str, **case: Any) -> Rows:
    """Training steps that share a batch, against a part of the time of each rank doing all of it beside
    others, and against PyTorch's DistributedDataParallel with gloo."""
    if "steps" in case:
        layers = [GRU(case["features"], case["hidden"], outputs="last"), Linear(case["hidden"], 10)]
        network = Sequential(layers, (case["steps"], case["features"]), device="host")
    else:
        network = make_network(case["model"], None, {"device": "host"})
    x, labels = make_batch(network, batch_size)
    net = distribute(network, group, over="batch")
    assert isinstance(net, BatchSequential)
    apart = accumulate(network, batch_size)
    sides = {"together": training_step(net, x, labels), "apart": training_step(apart, x, labels)}
    if importlib.util.find_spec("torch") is not None:
        sides["ddp"] = ddp_step(group, network, x, labels, net.own_samples(batch_size), meeting)
    samples: dict[str, list[float]] = {side: [] for side in sides}
    for repeat in range(repeats + 2):
        for side, work in sides.items():
            seconds = at_once(group, work)
            if repeat > 1:  # the first compile, and allocate memory
                samples[side].append(seconds)
    part = [seconds / group.size for seconds in samples["apart"]]
    title = f"{name}, {group.size} ranks over the batch"
    rows = [row(title, "step", samples["together"], part, "a part of a process's own time")]
    if "ddp" in samples:
        rows.append(row(title, "step", samples["together"], samples["ddp"], "PyTorch's DDP, gloo"))
    return rows


def training_step(net: BatchSequential, x: np.ndarray, labels: np.ndarray) -> Callable[[], object]:
    """A step of training."""
    step = CapturedStep(net, SGD(net.parameters, lr=1e-3, momentum=0.9))
    return partial(step, x, labels)


def ddp_step(
    group: Group, network: Sequential, x: np.ndarray, labels: np.ndarray, samples: slice, meeting: str
) -> Callable[[], None]:
    """A training step of a rank's samples by PyTorch's DistributedDataParallel over gloo, from ranks that
    meet at the path `meeting`."""
    import torch

    from bppsa_cupy.tools.torch_modules import torch_network

    torch.set_num_threads(1)
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=group.rank, world_size=group.size
        )
    model = torch.nn.parallel.DistributedDataParallel(torch_network(network))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    inputs, targets = torch.tensor(x[samples]), torch.tensor(labels[samples])

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return step


def over_time(group: Group, steps: int, hidden: int, batch_size: int, repeats: int, **_: Any) -> Rows:
    """The passes of the paper's RNN over time, serially on one process, and on all ranks."""
    layers = [RNN(1, hidden, outputs="last", forward_method="serial"), Linear(hidden, 10)]
    network = Sequential(layers, (steps, 1), device="host")
    x, labels = make_bitstreams(steps, batch_size).inputs.astype(network.dtype), np.arange(batch_size) % 10
    net = distribute(network, group, over="time")
    assert isinstance(net, TimeSequential)
    _, gradient = cross_entropy(network.forward(x), labels)
    net.forward(x)
    case = f"RNN T={steps} B={batch_size} H={hidden}, {group.size} ranks over time"
    forward = in_turn(
        group,
        lambda: network.forward(x, into=network.last_pass),
        lambda: net.forward(x, into=net.last_pass),
        repeats,
    )
    assert net.last_pass is not None
    rows = [row(case, "forward", *forward, "one process, serially", "; ".join(net.last_pass.forward_ways))]
    for method in ("bp", "blelloch", "auto"):
        serial, shared = partial(network.backward, gradient, "bp"), partial(net.backward, gradient, method)
        samples = in_turn(group, serial, shared, repeats)
        serial()
        require_equal(network, net, 1e-4)
        assert net.last_backward is not None
        note = "; ".join(net.last_backward.backward_ways)
        rows.append(row(f"{case}, {method}", "backward", *samples, "one process, serially", note))
    group.barrier()
    return rows


def over_pipeline(group: Group, model: str, batch_size: int, batches: int, repeats: int, **more: Any) -> Rows:
    """Training by one process beside others that do the same, and by each schedule over the ranks. The note
    has the bound of the speed-up, the sum of the stages' times divided by the longest."""

    def make() -> Sequential:
        return make_network(model, None, {"device": "host"})

    def trainer(trained: Pipeline | Sequential) -> Callable[[], Any]:
        """What trains an epoch, from where the last call left off."""
        network = trained if isinstance(trained, Sequential) else trained.network
        optimizer = SGD(network.parameters, lr=1e-3, momentum=0.9)
        settings = Settings(method="bp", epochs=1, batch_size=batch_size)
        return lambda: train(trained, dataset, optimizer, settings)

    first = make()
    split, classes = Split(*make_batch(first, batch_size * batches), None), first.output_shape[-1]
    dataset = Dataset("drawn", first.input_shape, classes, split, None, None)
    alone, title = trainer(first), f"{model} B={batch_size}"

    def measure(case: str, together: Callable[[], Any]) -> dict[str, Any]:
        samples = in_turn(group, alone, together, repeats)
        ours, theirs = ([seconds / batches for seconds in side] for side in samples)
        return row(case, "step", ours, theirs)

    rows = [measure(f"{title}, {group.size} processes at once", alone)]
    for name in more["pipelines"]:
        micro = more["micro_batches"] if SCHEDULES[name].micro else 1
        ppv = placed(first, more["ppv"] if more["ppv"] is not None else group.size - 1)
        pipeline = Pipeline(make(), ppv, name, group, micro_batches=micro)
        simulated: list[TraceRow] = []
        cuts = ",".join(map(str, ppv))
        result = measure(f"{title} ppv {cuts}, {group.size} ranks, {name}", trainer(pipeline))
        state = pipeline.network.state_dict()
        if group.rank == 0:
            reference = Pipeline(make(), ppv, name, micro_batches=micro, trace=simulated)
            again = trainer(reference)
            for _ in range(repeats + 1):
                again()
            for key, array in reference.network.state_dict().items():
                np.testing.assert_array_equal(state[key], array, err_msg=f"{name} {key}")
            stages = stage_seconds(simulated, len(ppv) + 1)
            result["note"] = f"bound {sum(stages) / max(stages):.3g}; parameters equal those of one process"
        rows.append(result)
        group.barrier()
    return rows


def stage_seconds(trace: list[TraceRow], stages: int) -> list[float]:
    """What a batch takes on each stage: the sum of the medians of its actions, by kind and micro-batch."""
    durations: list[dict[tuple[int, int], list[float]]] = [{} for _ in range(stages)]
    for action, _, ready, ended in trace:
        durations[action.stage].setdefault((action.kind, action.micro), []).append(ended - ready)
    return [sum(float(np.median(times)) for times in by_action.values()) for by_action in durations]


OVER: dict[str, Callable[..., Rows]] = {
    "batch": over_batch,
    "layers": over_layers,
    "time": over_time,
    "pipeline": over_pipeline,
}


def main() -> None:
    """Run what the options say, and write rank 0's rows."""
    path = Path(sys.argv[1])
    options = json.loads(path.read_text(encoding="utf-8"))
    with guard():
        group = Group(device="host")
        keep_to_core(group)
        meeting = str(path.with_suffix(".meeting"))
        rows = OVER[options.pop("over")](group, meeting=meeting, **options)
        if group.rank == 0:
            path.with_suffix(".out").write_text(json.dumps(rows), encoding="utf-8")
        group.close()


if __name__ == "__main__":
    main()
