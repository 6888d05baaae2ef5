"""The runs: each takes settings alone and gives a result as JSON holds it."""

from __future__ import annotations

import base64
import zlib
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from bppsa_cupy.data import Dataset, load
from bppsa_cupy.models import build_model
from bppsa_cupy.network.prune import prune
from bppsa_cupy.tools.benchmarks import jacobians
from bppsa_cupy.tools.benchmarks.harness import BenchmarkError, quartiles
from bppsa_cupy.tools.benchmarks.rivals import best
from bppsa_cupy.tools.benchmarks.sequences import CASES, TF32, measure_case, torch_rivals
from bppsa_cupy.tools.pictures.jacobian_picture import raster
from bppsa_cupy.tools.plans.flops import flops
from bppsa_cupy.tools.reproduction import lenet5, sequences
from bppsa_cupy.tools.reproduction.data import bitstreams, waves
from bppsa_cupy.tools.reproduction.space import simulated_space
from bppsa_cupy.tools.reproduction.torch_training import import_torch

#: Our sides of a recurrent benchmark: what the cost model takes, and the scan over chunks of steps.
OURS = {"ours": "auto", "scan": "blelloch"}
#: Points of a training curve that are kept, each a mean.
POINTS = 400

_load = lru_cache(maxsize=1)(load)


def operator(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Sparsity, sizes and times of one operator of VGG-11, as `bppsa-bench jacobians` has them."""
    import_torch()
    arguments = Namespace(against="torch", **settings)
    return [
        row.to_json() for row in jacobians.rows_of_layer(arguments, settings["layer"], settings["columns"])
    ]


def zeros(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A corner of an operator's transposed Jacobian as dots, and its zeros in numbers."""
    layers = build_model("vgg11", device="host").layers[: settings["layer"] + 1]
    network = jacobians.forward_pass(layers, "host")
    record = list(network.transposed_jacobians())[-1]
    height, width = record.pattern.shape
    corner = (0, min(settings["corner"], height)), (0, min(settings["corner"], width))
    dots, window, step = raster(record, *corner)
    values = record.on_host().values(0)
    return {
        "label": record.label,
        "shape": [height, width],
        "nnz": record.pattern.nnz,
        "possible_zeros": int((values == 0).sum()),
        "value_bytes": values.nbytes,
        "window": list(window),
        "step": list(step),
        "size": list(dots.shape),
        "dots": base64.b64encode(zlib.compress(dots.tobytes(), 9)).decode(),
    }


def unpacked(result: Mapping[str, Any]) -> np.ndarray:
    """The dots of `zeros`, (height, width) uint8."""
    data = zlib.decompress(base64.b64decode(result["dots"]))
    return np.frombuffer(data, np.uint8).reshape(result["size"])


def convolutional_training(settings: Mapping[str, Any]) -> dict[str, Any]:
    """One curve of figure 6."""
    dataset = _load(settings["data"])
    options = {name: settings[name] for name in (*lenet5.SETTINGS, "device")}
    losses = lenet5.train_run(dataset, settings["dtype"], settings["run"], **options)
    return {"data": dataset.name, "losses": losses}


def recurrent_training(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The curves of figure 7 or of a set of figure 13, in one dtype, and how far they lie apart."""
    import_torch()
    dataset = _sequences(settings)
    names = (*sequences.SETTINGS, "device")
    arguments = Namespace(progress=False, **{name: settings[name] for name in names})
    curves, comparison = sequences.train_all(arguments, dataset, settings["model"], settings["dtype"])
    return {
        "data": dataset.name,
        "shape": list(dataset.input_shape),
        "samples": len(dataset.train),
        "comparison": comparison,
        "curves": {
            run: {
                "losses": _thinned(curve.losses),
                "seconds": _thinned(curve.seconds),
                "accuracy": curve.accuracy,
                "backward": list(curve.backward),
            }
            for run, curve in curves.items()
            if not run.startswith("noise")
        },
    }


def _sequences(settings: Mapping[str, Any]) -> Dataset:
    """Figure 7's bitstreams; of figure 13 a file of features, or a stand-in of the same sizes."""
    if settings["model"] == "rnn":
        return bitstreams(settings["length"], settings["samples"])
    if settings["data"] is not None:
        return _load(settings["data"])
    steps, features = settings["sizes"]
    return waves(steps, features, settings["samples"])


def _thinned(values: list[float]) -> list[float]:
    """At most POINTS means of neighbours."""
    parts = np.array_split(np.asarray(values), min(POINTS, len(values)))
    return [float(f"{part.mean():.6g}") for part in parts]


def recurrent(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of a pass forward and back of one row of tables 4 to 6: median and quartiles by side.

    The rival is the quickest of PyTorch's, without TF32.
    """
    import_torch()
    case = next(case for case in CASES[settings["cell"]] if case.name == settings["case"])
    shortened = replace(case, steps=min(case.steps, settings["most_steps"]))
    arguments = Namespace(against="torch", **settings)
    measured = measure_case(arguments, shortened, torch_rivals(arguments, shortened), OURS)
    measured.pop(TF32, None)
    ours = {side: measured.pop(side) for side in OURS}
    rival = best(measured)
    assert rival is not None
    sides = {**ours, "theirs": rival[1]}
    return {
        "steps": shortened.steps,
        "features": case.features,
        "batch": case.batch,
        "against": rival[0],
        "seconds": {
            side: {
                quantity: {"median": float(np.median(samples)), "quartiles": quartiles(samples)}
                for quantity, samples in measurement.seconds.items()
            }
            for side, measurement in sides.items()
        },
    }


def work(settings: Mapping[str, Any]) -> dict[str, Any]:
    """FLOP of every step of the schedules of a pruned network (figure 10)."""
    network = build_model(settings["model"], device="host", seed=settings["seed"])
    prune(network, settings["prune"])
    plan = network.plan(schedules=("linear",), batch_size=1)
    if not plan.chains:
        raise BenchmarkError(f"{settings['model']} has no run of layers to scan")
    return flops(plan, full=settings["full"])


def space(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Appendix B's space a device, simulated, by numbers of devices."""
    return simulated_space(settings["layers"], settings["devices"])
