"""What every rank of `bppsa-bench ranks` runs: the same work by one process and over the ranks, in turn.

Rank 0 works alone while the others sleep in a barrier, then all work; it writes what it measured to a file.
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

from bppsa_cupy.data.bitstream import make_bitstreams
from bppsa_cupy.distributed import BatchSequential, Group, accumulate, distribute, guard
from bppsa_cupy.distributed.balance import layer_seconds
from bppsa_cupy.distributed.time_network import TimeSequential
from bppsa_cupy.layers import GRU, RNN, Linear, MinGRU
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.plan import Partition
from bppsa_cupy.tools.benchmarks.train import make_network
from bppsa_cupy.training.captured import micro_batch_gradients
from bppsa_cupy.training.losses import cross_entropy
from bppsa_cupy.training.optimizers import SGD

#: Seconds between the call and the moment at which all ranks begin.
LEAD = 2e-3


def keep_to_core(group: Group) -> None:
    """Let each rank work on a core of its own, where there are as many: two that the system puts on one take
    twice as long until it moves them."""
    cores = sorted(os.sched_getaffinity(0))
    if group.size <= len(cores):
        os.sched_setaffinity(0, {cores[group.rank]})


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
        samples["together"].append(at_once(group, together))
        if not repeat:  # the first wakes what sleeps
            for times in samples.values():
                times.clear()
    return samples


def at_once(group: Group, work: Callable[[], Any]) -> float:
    """Seconds from a moment at which all ranks begin to the end of the last."""
    group.barrier()
    begin = np.array([time.perf_counter() + LEAD])
    group.broadcast(begin)
    while time.perf_counter() < begin[0]:
        pass
    work()
    ends = np.empty(group.size)
    group.allgather(np.array([time.perf_counter()]), ends)
    return float(ends.max() - begin[0])


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
    # Every rank takes rank 0's measurement.
    times = layer_seconds(whole, len(x))
    group.broadcast(times)
    partition = Partition.balanced(times, group.size)
    net = distribute(whole, group, partition)
    results: dict[str, Any] = {"partition": partition.bounds, "methods": {}}
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


def over_batch(group: Group, options: dict[str, Any]) -> dict[str, Any]:
    """Training steps of each case: "apart", every rank does all of the work by itself, side by side;
    "together", they share the batch; "ddp", by PyTorch's DistributedDataParallel with gloo, where there is
    PyTorch."""
    results = {}
    for case in options["cases"]:
        rng, batch = np.random.default_rng(0), case["batch_size"]
        if "steps" in case:
            layers = [GRU(case["features"], case["hidden"], outputs="last"), Linear(case["hidden"], 10)]
            whole = Sequential(layers, (case["steps"], case["features"]), device="host")
        else:
            whole = make_network(case["model"], None, {"device": "host"})
        x = rng.standard_normal((batch, *whole.input_shape)).astype(whole.dtype)
        labels = rng.integers(0, whole.output_shape[-1], batch)
        net = distribute(whole, group, over="batch")
        assert isinstance(net, BatchSequential)
        sides: dict[str, Callable[[], Any]] = {
            "apart": _step(accumulate(whole, batch), x, labels), "together": _step(net, x, labels)
        }  # fmt: skip
        if importlib.util.find_spec("torch") is not None:
            sides["ddp"] = ddp_step(group, whole, x, labels, net.own_samples(batch), options["meeting"])
        samples: dict[str, list[float]] = {name: [] for name in sides}
        for repeat in range(options["repeats"] + 2):
            for name, work in sides.items():
                seconds_taken = at_once(group, work)
                if repeat > 1:  # the first compile, and take memory
                    samples[name].append(seconds_taken)
        results[case["name"]] = samples
    return results


def ddp_step(
    group: Group, network: Sequential, x: np.ndarray, labels: np.ndarray, own: slice, meeting: str
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
    inputs, targets = torch.tensor(x[own]), torch.tensor(labels[own])

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return step


def _step(net: BatchSequential, x: np.ndarray, labels: np.ndarray) -> Callable[[], None]:
    """A step of training."""
    optimizer = SGD(net.parameters, lr=1e-3, momentum=0.9)

    def step() -> None:
        micro_batch_gradients(net, x, labels, None, None, into=net.last_pass)
        optimizer.step(net.gradients)

    return step


def over_time(group: Group, options: dict[str, Any]) -> dict[str, Any]:
    """The passes of the paper's RNN over time, serially on one process, and on all ranks."""
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
    assert net.last_pass is not None
    forward: dict[str, Any] = in_turn(
        group,
        lambda: whole.forward(x, into=whole.last_pass),
        lambda: net.forward(x, into=net.last_pass),
        options["repeats"],
    )
    forward["ran"] = net.last_pass.forward_ways
    results: dict[str, Any] = {}
    for method in ("bp", "blelloch", "auto"):
        results[method] = in_turn(
            group,
            partial(whole.backward, gradient, "bp"),
            partial(net.backward, gradient, method),
            options["repeats"],
        )
        whole.backward(gradient, "bp")
        require_equal(whole, net, 1e-4)
        assert net.last_backward is not None
        results[method]["ran"] = net.last_backward.backward_ways
    found: dict[str, Any] = {"forward": forward, "ways": results}
    alone = in_turn(group, partial(whole.backward, gradient, "auto"), lambda: None, options["repeats"])[
        "alone"
    ]
    assert whole.last_backward is not None
    found["one"] = {"auto": alone, "ran": whole.last_backward.backward_ways}
    group.barrier()
    return found


def over_linear(group: Group, options: dict[str, Any]) -> dict[str, Any]:
    """Passes of a MinGRU over time, on one process and on all ranks."""
    steps, hidden, batch = options["steps"], options["hidden"], options["batch_size"]
    whole = Sequential([MinGRU(hidden, hidden, outputs="last")], (steps, hidden), device="host")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch, steps, hidden), whole.dtype)
    gradient = rng.standard_normal((batch, hidden), whole.dtype)
    net = distribute(whole, group, over="time")
    whole.forward(x)
    net.forward(x)
    forward = in_turn(
        group,
        lambda: whole.forward(x, into=whole.last_pass),
        lambda: net.forward(x, into=net.last_pass),
        options["repeats"],
    )
    backward = in_turn(
        group, partial(whole.backward, gradient), partial(net.backward, gradient), options["repeats"]
    )
    whole.backward(gradient)
    require_equal(whole, net, 1e-3)
    return {"forward": forward, "backward": backward}


def main() -> None:
    """Run what the options say, and write rank 0's measurements."""
    path = Path(sys.argv[1])
    options = json.loads(path.read_text(encoding="utf-8"))
    with guard():
        group = Group(device="host")
        keep_to_core(group)
        meeting = str(path.with_suffix(".meeting"))
        results: dict[str, Any] = {}
        if "batch" in options:
            results["batch"] = over_batch(group, {**options["batch"], "meeting": meeting})
        if "layers" in options:
            results["layers"] = over_layers(group, options["layers"])
        if "time" in options:
            cases = options["time"]["cases"]
            results["time"] = [over_time(group, {**options["time"], **case}) for case in cases]
        if "linear" in options:
            results["linear"] = over_linear(group, options["linear"])
        if group.rank == 0:
            path.with_suffix(".out").write_text(json.dumps(results), encoding="utf-8")
        group.close()


if __name__ == "__main__":
    main()
