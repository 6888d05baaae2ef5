"""What every rank of `bppsa-bench ranks` runs: the same work by one process and over the ranks, in turn.

Rank 0 works alone while the others sleep in a barrier, then all work; it writes what it measured to a file.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.data.bitstream import make_bitstreams
from bppsa_cupy.distributed import Group, distribute, guard
from bppsa_cupy.distributed.balance import LayerTimes, backward_partition, backward_seconds
from bppsa_cupy.distributed.group import import_mpi
from bppsa_cupy.distributed.time_network import TimeSequential
from bppsa_cupy.layers import RNN, Linear
from bppsa_cupy.layers.recurrent_context import RecurrentContext
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.timescan.chunked import TimeScan
from bppsa_cupy.tools.benchmarks.train import make_network
from bppsa_cupy.training.losses import cross_entropy

#: Seconds between the call and the moment at which all ranks begin.
LEAD = 2e-3
#: Bytes of the messages that go to and fro: a vector's and a matrix's.
TRIPS = (1 << 16, 10 * 1000 * 1000)


def keep_to_core(group: Group) -> None:
    """Let each rank work on a core of its own, where there are as many: two that the system puts on one take
    twice as long until it moves them."""
    cores = sorted(os.sched_getaffinity(0))
    if group.size <= len(cores):
        os.sched_setaffinity(0, {cores[group.rank]})


def seconds(work: Callable[[], Any], repeats: int) -> float:
    """The median time of some runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def measured_times(network: Sequential, repeats: int) -> LayerTimes:
    """What each layer takes in the last pass of a network, on this process."""
    current, vjp, gradients = network.last_pass, [], []
    assert current is not None
    for index, (layer, ctx) in enumerate(zip(network.layers, current.layers, strict=True)):
        gradient = current.output_gradients[index]
        vjp.append(seconds(partial(layer.vjp, ctx, gradient), repeats) if index else 0.0)
        own = bool(layer.parameter_shapes())
        by_weights = partial(layer.parameter_gradients, ctx, gradient)
        gradients.append(seconds(by_weights, repeats) if own else 0.0)
    return LayerTimes(vjp, vjp, gradients)


def in_turn(
    group: Group, alone: Callable[[], Any], together: Callable[[], Any], repeats: int
) -> dict[str, list[float]]:
    """Samples of rank 0's own work, while the others sleep, and of all ranks' work: from a moment at which
    all begin to the end of the last. The ranks are on one machine, and so on one clock."""
    samples: dict[str, list[float]] = {"alone": [], "together": []}
    for repeat in range(repeats + 1):
        group.barrier()
        start = time.perf_counter()
        if group.rank == 0:
            alone()
        samples["alone"].append(time.perf_counter() - start)
        group.barrier()
        begin = np.array([time.perf_counter() + LEAD])
        group.broadcast(begin)
        while time.perf_counter() < begin[0]:
            pass
        together()
        ends = np.empty(group.size)
        group.allgather(np.array([time.perf_counter()]), ends)
        samples["together"].append(float(ends.max() - begin[0]))
        if not repeat:  # the first wakes what sleeps
            for times in samples.values():
                times.clear()
    return samples


def require_equal(whole: Sequential, net: Sequential, tolerance: float) -> None:
    """Raise AssertionError where a rank's gradients are not those of the whole network."""
    for name, array in net.gradients.items():
        norm, difference = (np.linalg.norm(a) for a in (whole.gradients[name], array - whole.gradients[name]))
        assert difference <= tolerance * norm, name


def over_layers(group: Group, options: dict[str, Any]) -> dict[str, Any]:
    """A step's forward and backward pass by each method."""
    whole = make_network(options["model"], options["prune"], {"device": "host"})
    rng = np.random.default_rng(0)
    x = rng.standard_normal((options["batch_size"], *whole.input_shape)).astype(whole.dtype)
    labels = rng.integers(0, whole.output_shape[-1], len(x))
    _, gradient = cross_entropy(whole.forward(x), labels)
    whole.backward(gradient, "bp")
    times = measured_times(whole, 5)
    # Every rank takes rank 0's measurement.
    every = np.array([times.vjp, times.gradients])
    group.broadcast(every)
    times = LayerTimes(every[0], every[0], every[1])
    partition = backward_partition(times, group.size)
    net = distribute(whole, group, partition)
    results: dict[str, Any] = {
        "partition": partition.bounds,
        "predicted": backward_seconds(times, partition),
        "predicted_alone": float(every.sum()),
        "methods": {},
    }
    if options["methods"] != ["bp"]:
        plan = net.plan(batch_size=len(x), schedules=[m for m in options["methods"] if m != "bp"])
        net.use(plan)
        whole.use(plan)
    current, whole_pass = None, None
    for method in options["methods"]:
        net.forward(x, into=current)
        current = net.last_pass
        whole.forward(x, into=whole_pass)
        whole_pass = whole.last_pass
        found = in_turn(
            group,
            partial(whole.backward, gradient, method),
            partial(net.backward, gradient, method),
            options["repeats"],
        )
        whole.backward(gradient, method)
        net.backward(gradient, method)
        require_equal(whole, net, 0.0)
        results["methods"][method] = found
    return results


def over_time(group: Group, options: dict[str, Any]) -> dict[str, Any]:
    """The way back of the paper's RNN over time, serially on one process and by chunks on all ranks."""
    steps, batch = options["steps"], options["batch_size"]
    layers = [
        RNN(1, options["hidden"], outputs="last", forward_method="serial"),
        Linear(options["hidden"], 10),
    ]
    whole = Sequential(layers, (steps, 1), device="host")
    x = make_bitstreams(steps, batch).inputs.astype(whole.dtype)
    labels = np.arange(batch) % 10
    net = distribute(whole, group, over="time")
    assert isinstance(net, TimeSequential)
    _, gradient = cross_entropy(whole.forward(x), labels)
    net.forward(x)
    results = {}
    for method in ("bp", "blelloch"):
        results[method] = in_turn(
            group,
            partial(whole.backward, gradient, "bp"),
            partial(net.backward, gradient, method),
            options["repeats"],
        )
        whole.backward(gradient, "bp")
        require_equal(whole, net, 1e-4)
    assert net.last_backward is not None
    found = {"ways": results, "ran": net.last_backward.backward_ways}
    if group.rank == 0:
        found["phases"] = phases(whole, net, options["repeats"])
    group.barrier()
    return found


def phases(whole: Sequential, net: TimeSequential, repeats: int) -> dict[str, float]:
    """What the phases of a scan over all steps take on one process, by the chunk length of the ranks."""
    current = whole.last_pass
    assert current is not None
    ctx = current.layers[0]
    assert isinstance(ctx, RecurrentContext) and ctx.stack is not None
    d, ranges = ctx.stack.directions[0], net.ranges(current.input.shape[1], current.batch)
    assert ranges is not None
    scan = TimeScan(
        ctx.device, d.walk, d.by_output, d.boundary, d.delta, d.entering, "blelloch", chunk=ranges.chunk
    )
    serial = TimeScan(ctx.device, d.walk, d.by_output, d.boundary, d.delta, d.entering, "bp")
    named: dict[str, Callable[[], Any]] = {
        "reduce": scan.reduce,
        "scan": scan.scan,
        "expand": scan.expand,
        "serial": serial,
    }
    times = {name: seconds(work, repeats) for name, work in named.items()}
    state = d.walk.size.state
    map_bytes = d.walk.size.batch * state * (state * d.walk.state.itemsize + 4)
    return {**times, "chunk": ranges.chunk, "map_bytes": map_bytes, "steps": d.walk.size.steps}


def round_trips(group: Group, repeats: int) -> dict[str, dict[str, list[float]]]:
    """A message to rank 1 and back, by Group and by mpi4py itself."""
    mpi = import_mpi()
    world, results = mpi.COMM_WORLD, {}
    for size in TRIPS:
        array = np.zeros(size, np.uint8)
        samples: dict[str, list[float]] = {"group": [], "mpi4py": []}
        for _ in range(repeats * 5):
            for name in samples:
                group.barrier()
                start = time.perf_counter()
                if group.rank < 2:
                    other = 1 - group.rank
                    for turn in (0, 1):
                        sends = group.rank == turn
                        if name == "group":
                            (group.send if sends else group.receive)(array, other)
                        else:
                            (world.Send if sends else world.Recv)(array, other)
                samples[name].append(time.perf_counter() - start)
        results[str(size)] = samples
    return results


def main() -> None:
    """Run what the options say, and write rank 0's measurements."""
    path = Path(sys.argv[1])
    options = json.loads(path.read_text(encoding="utf-8"))
    with guard():
        group = Group(device="host")
        keep_to_core(group)
        results: dict[str, Any] = {"layers": over_layers(group, options["layers"])}
        if group.size > 1:
            results["trips"] = round_trips(group, options["layers"]["repeats"])
        results["time"] = over_time(group, options["time"])
        results["messages"] = {"count": sum(group.messages.values()), "bytes": sum(group.bytes.values())}
        if group.rank == 0:
            path.with_suffix(".out").write_text(json.dumps(results), encoding="utf-8")
        group.close()


if __name__ == "__main__":
    main()
