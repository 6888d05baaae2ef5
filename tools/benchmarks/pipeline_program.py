"""What every rank of `bppsa-bench pipeline` runs: training by one process and over the ranks, in turn."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.data import Dataset, Split
from bppsa_cupy.distributed import Group, guard
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.pipeline import SCHEDULES, Pipeline, Trace
from bppsa_cupy.tools.benchmarks.ranks_program import in_turn, keep_to_core
from bppsa_cupy.tools.benchmarks.train import make_network
from bppsa_cupy.tools.models import placed
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.optimizers import SGD
from bppsa_cupy.training.settings import Settings


def trainer(pipeline: Pipeline | Sequential, dataset: Dataset, batch_size: int) -> Callable[[], Any]:
    """What trains an epoch, from where the last call left off."""
    network = pipeline if isinstance(pipeline, Sequential) else pipeline.network
    optimizer = SGD(network.parameters, lr=1e-3, momentum=0.9)
    settings = Settings(method="bp", epochs=1, batch_size=batch_size)
    return lambda: train(pipeline, dataset, optimizer, settings)


def stage_seconds(trace: Trace, stages: int) -> list[float]:
    """What a batch takes on each stage: the sum of the medians of its actions, by kind and micro-batch."""
    found: list[dict[tuple[int, int], list[float]]] = [{} for _ in range(stages)]
    for action, _, ready, ended in trace.rows:
        found[action.stage].setdefault((action.kind, action.micro), []).append(ended - ready)
    return [sum(float(np.median(times)) for times in own.values()) for own in found]


def compare(group: Group, options: dict[str, Any]) -> dict[str, Any]:
    """Training by one process, by one beside others that do the same, and by each schedule over the ranks."""

    def make() -> Sequential:
        return make_network(options["model"], None, {"device": "host"})

    first = make()
    size, steps = options["batch_size"], options["steps"]
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((size * steps, *first.input_shape)).astype(first.dtype)
    labels = rng.integers(0, first.output_shape[-1], len(inputs))
    split, classes = Split(inputs, labels, None), first.output_shape[-1]
    dataset = Dataset("drawn", first.input_shape, classes, split, None, None)
    alone = trainer(first, dataset, size)
    beside = in_turn(group, alone, alone, options["repeats"])
    found: dict[str, Any] = {"schedules": {}}
    found["beside"] = [value / steps for value in beside["together"]]
    found["alone"] = [value / steps for value in beside["alone"]]
    for name in options["pipelines"]:
        micro = options["micro_batches"] if SCHEDULES[name].micro else 1
        ppv = placed(first, options["ppv"] if options["ppv"] is not None else group.size - 1)
        stages = len(ppv) + 1
        simulated = Trace()
        together = Pipeline(make(), ppv, name, group, micro_batches=micro)
        samples = in_turn(group, alone, trainer(together, dataset, size), options["repeats"])
        state, runs = together.network.state_dict(), options["repeats"] + 1
        if group.rank == 0:
            whole = Pipeline(make(), ppv, name, micro_batches=micro, trace=simulated)
            again = trainer(whole, dataset, size)
            for _ in range(runs):
                again()
            for key, array in whole.network.state_dict().items():
                np.testing.assert_array_equal(state[key], array, err_msg=f"{name} {key}")
            found["schedules"][name] = {
                "ppv": list(ppv),
                "micro_batches": micro,
                "stage_seconds": stage_seconds(simulated, stages),
                "alone": [value / steps for value in samples["alone"]],
                "together": [value / steps for value in samples["together"]],
            }
        group.barrier()
    return found


def main() -> None:
    """Run what the options say, and write rank 0's measurements."""
    path = Path(sys.argv[1])
    options = json.loads(path.read_text(encoding="utf-8"))
    with guard():
        group = Group(device="host")
        keep_to_core(group)
        results = compare(group, options)
        if group.rank == 0:
            path.with_suffix(".out").write_text(json.dumps(results), encoding="utf-8")
        group.close()


if __name__ == "__main__":
    main()
