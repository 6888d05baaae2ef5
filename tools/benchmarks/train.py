"""A step of a model against PyTorch, SparseProp and the converted model."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import partial
from typing import Any

import numpy as np

from bppsa_cupy.data import batches, load
from bppsa_cupy.devices import Device
from bppsa_cupy.models import build_model
from bppsa_cupy.network.prune import prune
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools.benchmarks.harness import (
    OVERALL,
    BenchmarkError,
    Case,
    Step,
    count_threads,
    passes_step,
    torch_rival,
)
from bppsa_cupy.tools.choices import SCHEDULES
from bppsa_cupy.training.loop import check_dataset
from bppsa_cupy.training.optimizers import SGD

#: The paper's optimizer (section 3.5).
LEARNING_RATE, MOMENTUM = 1e-3, 0.9
#: How close loss and gradients must be to the rival's, relative to their norm, and the least norm counted, as
#: a part of that of all: a bias before batch normalisation has no gradient.
TOLERANCE = {"float32": 1e-4, "float64": 1e-10}
LEAST_GRADIENT = 1e-2


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """A step by method, share of pruned weights and number of threads, one and all."""
    size = min(arguments.batch_size, 2) if arguments.quick else arguments.batch_size
    options: dict[str, Any] = {"device": arguments.device, "dtype": arguments.dtype}
    batch: dict[str, Any] = {"batch_size": size}
    if arguments.data is not None:
        dataset = load(arguments.data)
        options |= {"input_shape": dataset.input_shape, "classes": dataset.classes}
        check_dataset(build_model(arguments.model, **options), dataset)
        first = next(batches(dataset.train, size, seed=0, dtype=np.dtype(arguments.dtype)))
        batch |= {"inputs": first.inputs, "labels": first.labels}
    for share in arguments.prune:
        making = {"model": arguments.model, "share": share, "options": options, **batch}
        making["inference"] = arguments.inference
        name = arguments.model + (f" pruned by {100 * share:g} %" if share else "")
        name += f" B={size}" + ("" if arguments.dtype == "float32" else f", {arguments.dtype}")
        rivals = {}
        if "torch" in arguments.against:
            rivals["PyTorch"] = torch_rival(partial(torch_step, **making), both=False)
        for key in ("masked", "sparseprop", "converted", "compact"):
            if key in arguments.against:
                side = {"masked": "PyTorch with masks", "sparseprop": "SparseProp"}.get(key, key)
                rivals[side] = torch_rival(partial(torch_step, **making, sparse=key), both=False)
        for threads in sorted({1, arguments.threads}) if arguments.device == "host" else (None,):
            for method in arguments.methods:
                where = "GPU" if threads is None else count_threads(threads)
                way = "inference" if arguments.inference else method
                yield Case(
                    f"{name}, {where}, {way}", partial(our_step, **making, method=method), rivals,
                    tolerance=arguments.tolerance or TOLERANCE[arguments.dtype], least=LEAST_GRADIENT,
                    threads=threads, memory=True,
                )  # fmt: skip


def make_network(model: str, share: float | None, options: dict[str, Any]) -> Sequential:
    """The network, the same in every process."""
    network = build_model(model, **options)
    if share:
        prune(network, share)
    return network


def make_batch(network: Sequential, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Random images and labels."""
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((batch_size, *network.input_shape)).astype(network.dtype)
    return inputs, rng.integers(0, network.output_shape[-1], batch_size)


def _made(
    model: str, share: float, options: dict[str, Any], batch_size: int, inputs: Any = None, labels: Any = None
) -> tuple[Sequential, Any, Any]:
    network = make_network(model, share, options)
    return network, *((inputs, labels) if inputs is not None else make_batch(network, batch_size))


def our_step(method: str, inference: bool = False, **making: Any) -> Step:
    """Our step: every run starts from the same parameters and no velocity."""
    network, inputs, labels = _made(**making)
    if inference:
        network.eval()
        device = network.device
        return output_step(partial(network.forward, device.asarray(inputs)), device.to_host, device)
    if method in SCHEDULES:
        network.use(network.plan(batch_size=len(inputs), schedules=[method]))
    optimizer = SGD(network.parameters, lr=LEARNING_RATE, momentum=MOMENTUM)
    parameters, state = network.state_dict(), optimizer.state_dict()
    random_state = dict(network.random_state)

    def reset() -> None:
        network.load_state_dict(parameters)
        optimizer.load_state_dict(state)
        network.random_state.update(random_state)

    def note() -> str:
        report = network.last_backward
        assert report is not None
        return "; ".join([report.method, *report.schedules])

    return passes_step(network, inputs, labels, method=method, optimizer=optimizer, reset=reset, note=note)


def output_step(forward: Callable[[], Any], fetch: Callable[[Any], Any], device: Device) -> Step:
    """A forward pass, whose result is the output."""
    results = dict[str, Any]()
    parts = {OVERALL: lambda: results.update(output=forward())}
    return Step(parts, lambda: {"output": fetch(results["output"])}, device)


def torch_step(sparse: str = "", inference: bool = False, **making: Any) -> Step:
    """The step of PyTorch from the same parameters, inputs and labels. Dropout drops the same elements.

    With sparse="masked", torch.nn.utils.prune masks the weights. With "sparseprop", SparseProp (`pip install
    sparseprop`) replaces the modules that it expects to be faster. With "converted" or "compact",
    bppsa_cupy.torch converts the model. Then only the loss is compared, because the weights have another
    layout.
    """
    import torch
    from torch.nn.utils.prune import custom_from_mask

    from bppsa_cupy.tools.torch_modules import fix_dropout, to_numpy, torch_network, torch_passes
    from bppsa_cupy.torch import convert

    network, inputs, labels = _made(**making)
    model, masks = torch_network(network), network.masks
    fix_dropout(model, network, len(inputs))
    if sparse == "masked":
        for name, mask in masks.items():
            module, _, parameter = name.rpartition(".")
            custom_from_mask(model.get_submodule(module), parameter, torch.tensor(mask))
    elif sparse in ("converted", "compact"):
        convert(model, sparse="auto", compact=sparse == "compact", wait=True)
    elif sparse:
        try:
            from sparseprop.utils import swap_modules_with_sparse  # type: ignore[import-not-found]
        except ImportError as error:
            raise BenchmarkError(
                f"--against sparseprop needs the package sparseprop ({error}): "
                "pip install sparseprop==0.1.14, or use --against torch"
            ) from error
        with redirect_stdout(sys.stderr):
            swap_modules_with_sparse(model, tuple(inputs.shape), inplace=True)
    if inference:
        model.eval()
        x = torch.as_tensor(inputs, device=next(model.parameters()).device)
        return output_step(torch.no_grad()(partial(model, x)), to_numpy, network.device)
    parameters = {n: p.detach().clone() for n, p in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)

    def reset() -> None:
        model.load_state_dict(parameters)
        for state in optimizer.state.values():
            state["momentum_buffer"].zero_()

    step = torch_passes(
        model, inputs, labels, network.device, optimizer=optimizer, masks={} if sparse else masks, reset=reset
    )
    if sparse:
        everything = step.result
        step.result = lambda: {"loss": everything()["loss"]}
    return step
