"""Recurrent networks against PyTorch and JAX: a forward pass with the loss, and a backward pass to every
parameter, of one recurrent layer, its last state and a linear layer; and modules of the PyTorch and JAX
packages.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from bppsa_cupy.data.sequences import make_bitstreams
from bppsa_cupy.devices import get_device
from bppsa_cupy.layers import GRU, LSTM, RNN, Linear
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools.benchmarks.harness import (
    OVERALL,
    Case,
    Rival,
    Step,
    count_threads,
    jax_rival,
    passes_step,
    torch_rival,
)
from bppsa_cupy.tools.benchmarks.options import GRID
from bppsa_cupy.tools.paper import SETS, TABLE4, TABLE5, TABLE6, Epoch

LAYERS = {"rnn": RNN, "gru": GRU, "lstm": LSTM}
#: The paper's units, and classes.
HIDDEN, CLASSES = 20, 10
#: Features of the grid; steps with --quick.
FEATURES, QUICK_STEPS = 8, 12
#: T, H and B of modules of the PyTorch and JAX packages.
MODULE_SIZES = tuple(itertools.product((100, 1000), (20, 128), (1, 16)))


# ---- cases ----


def paper_cases(cell: str) -> Iterator[tuple[str, int, int, int, Epoch]]:
    """Name, T, features, B and the paper's epoch of each case in its tables 4 to 6."""
    if cell == "gru":
        for (name, batch), epoch in TABLE6.items():
            yield name if batch == 16 else f"{name}{batch}", *SETS[name], batch, epoch
        return
    for steps, epoch in TABLE4.items():
        yield f"T{steps}", steps, 1, 16, epoch
    for batch, epoch in TABLE5.items():
        if batch != 16:
            yield f"B{batch}", 1000, 1, batch, epoch


def cases_of_paper(arguments: argparse.Namespace) -> Iterator[Case]:
    """The RNN on bitstreams (tables 4 and 5), or the GRU on MFCC features (table 6)."""
    for name, steps, features, batch, epoch in paper_cases(arguments.name):
        if arguments.quick:
            steps, batch = min(steps, QUICK_STEPS), min(batch, 2)
        sizes = {"cell": arguments.name, "steps": steps, "features": features, "batch": batch}
        paper = {"backward": epoch.backward_ratio, OVERALL: epoch.overall_ratio}
        title = f"{name}: T={steps} B={batch} F={features}"
        yield _case(arguments, title, sizes, memory=True, paper=paper)
        if arguments.quick:
            return


def cases_of_grid(arguments: argparse.Namespace) -> Iterator[Case]:
    """RNN, GRU and LSTM of many sizes."""
    defaults = {name: values[:1] if arguments.quick else values for name, values in GRID.items()}
    defaults["length"] = [QUICK_STEPS] if arguments.quick else GRID["length"]
    sizes = (getattr(arguments, name) or values for name, values in defaults.items())
    end = " inference" if arguments.inference else ""
    for cell, hidden, batch, steps in itertools.product(arguments.cells, *sizes):
        options = {"cell": cell, "steps": steps, "features": FEATURES, "batch": batch, "hidden": hidden}
        title = f"{cell} H={hidden} B={batch} T={steps}{end}"
        note = f"ours on {count_threads(arguments.threads)}"
        yield _case(arguments, title, options, inference=arguments.inference, note=note)


def _case(
    arguments: argparse.Namespace, title: str, sizes: dict[str, Any], inference: bool = False, **more: Any
) -> Case:
    """Ours against PyTorch and JAX; on a GPU PyTorch without and with TF32, which is not compared."""
    sizes = {**sizes, "device": arguments.device, "inference": inference}
    rivals: dict[str, Rival] = {}
    if "torch" in arguments.against and arguments.device == "cuda":
        rivals["PyTorch with cuDNN"] = torch_rival(partial(torch_step, **sizes))
        rivals["PyTorch with cuDNN, TF32"] = torch_rival(
            partial(torch_step, tf32=True, **sizes), compared=False
        )
    elif "torch" in arguments.against:
        rivals["PyTorch"] = torch_rival(partial(torch_step, **sizes))
    if "jax" in arguments.against:
        rivals["jax.lax.scan"] = jax_rival(partial(jax_step, **sizes))
    return Case(title, partial(our_step, **sizes), rivals, **more)


# ---- sides ----


def make_network(cell: str, device: str, steps: int, features: int, hidden: int = HIDDEN) -> Sequential:
    """The paper's model: a recurrent layer, and a linear layer of its last state."""
    layers = [LAYERS[cell](features, hidden, outputs="last"), Linear(hidden, CLASSES)]
    return Sequential(layers, input_shape=(steps, features), device=device)


def make_batch(steps: int, features: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (B, T, F) and labels, the same in every process: bitstreams of one feature (equation 8),
    normal values, as features that are normalised, of several."""
    if features == 1:
        bits = make_bitstreams(steps, batch)
        return bits.inputs.astype(np.float32), bits.labels
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((batch, steps, features), dtype=np.float32)
    return inputs, generator.integers(0, CLASSES, batch)


def our_step(
    cell: str, device: str, steps: int, features: int, batch: int, hidden: int = HIDDEN,
    inference: bool = False,
) -> Step:  # fmt: skip
    """Our network."""
    network = make_network(cell, device, steps, features, hidden)
    inputs, labels = make_batch(steps, features, batch)
    if not inference:
        return passes_step(network, inputs, labels)
    network.eval()
    x, host = network.device.asarray(inputs), network.device.to_host
    scores: list[Any] = [None]

    def forward() -> None:
        scores[0] = network.forward(x, into=network.last_pass, keep=False)

    return Step({OVERALL: forward}, lambda: {"scores": np.array(host(scores[0]))}, network.device)


def torch_step(
    cell: str, device: str, steps: int, features: int, batch: int, hidden: int = HIDDEN,
    inference: bool = False, tf32: bool = False,
) -> Step:  # fmt: skip
    """PyTorch's layer, from the same parameters, inputs and labels."""
    import torch

    from bppsa_cupy.tools.torch_modules import to_numpy, torch_network, torch_passes

    network = make_network(cell, device, steps, features, hidden)
    model = torch_network(network)
    torch.backends.cudnn.allow_tf32 = tf32
    inputs, labels = make_batch(steps, features, batch)
    if not inference:
        return torch_passes(model, inputs, labels, network.device)
    x, scores = torch.tensor(inputs, device=next(model.parameters()).device), [torch.empty(0)]

    def forward() -> None:
        with torch.inference_mode():
            scores[0] = model(x)

    return Step({OVERALL: forward}, lambda: {"scores": to_numpy(scores[0])}, network.device)


def jax_step(
    cell: str, device: str, steps: int, features: int, batch: int, hidden: int = HIDDEN,
    inference: bool = False,
) -> Step:  # fmt: skip
    """The cell by jax.lax.scan and the linear layer: loss and gradients, one function compiled by jax.jit."""
    import jax

    network = make_network(cell, "host", steps, features, hidden)
    where = jax.devices("gpu" if device == "cuda" else "cpu")[0]
    arrays = jax.device_put((network.state_dict(), *make_batch(steps, features, batch)), where)
    scan, results = scan_of(cell, hidden, "0.", last=True), dict[str, Any]()

    def scores(parameters: Any, inputs: Any) -> Any:
        return scan(parameters, inputs) @ parameters["1.weight"].T + parameters["1.bias"]

    def loss(parameters: Any, inputs: Any, labels: Any) -> Any:
        logs = jax.nn.log_softmax(scores(parameters, inputs))
        return -logs[jax.numpy.arange(len(labels)), labels].mean()

    call = jax.jit(scores if inference else jax.value_and_grad(loss))

    def run_step() -> None:
        results["out"] = jax.block_until_ready(call(*(arrays[:2] if inference else arrays)))

    def result() -> dict[str, np.ndarray]:
        if inference:
            return {"scores": np.asarray(results["out"])}
        value, gradients = results["out"]
        return {"loss": np.asarray(value), **{name: np.asarray(array) for name, array in gradients.items()}}

    return Step({OVERALL: run_step}, result, get_device(device))


def scan_of(cell: str, hidden: int, prefix: str = "", last: bool = False) -> Callable[[Any, Any], Any]:
    """The cell by jax.lax.scan: all steps' states (B, T, H), or the last one's (B, H), of parameters, whose
    names begin with `prefix`, and sequences (B, T, F)."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_default_matmul_precision", "highest")  # on a GPU without TF32

    def gru(x: Any, u: Any, states: Any) -> Any:
        (r, z, n), (a, b, c), (h,) = jnp.split(x, 3, -1), jnp.split(u, 3, -1), states
        z = jax.nn.sigmoid(z + b)
        return ((1 - z) * jnp.tanh(n + jax.nn.sigmoid(r + a) * c) + z * h,)

    def lstm(x: Any, u: Any, states: Any) -> Any:
        i, f, g, o = jnp.split(x + u, 4, -1)
        c = jax.nn.sigmoid(f) * states[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c

    def rnn(x: Any, u: Any, states: Any) -> Any:
        return (jnp.tanh(x + u),)

    step = {"gru": gru, "lstm": lstm, "rnn": rnn}[cell]

    def over_time(params: Any, x: Any) -> Any:
        def body(states: Any, row: Any) -> Any:
            u = states[0] @ params[f"{prefix}weight_hh_l0"].T + params[f"{prefix}bias_hh_l0"]
            states = step(row, u, states)
            return states, None if last else states[0]

        weight, bias = params[f"{prefix}weight_ih_l0"], params[f"{prefix}bias_ih_l0"]
        projected = x.swapaxes(0, 1) @ weight.T + bias
        zeros = jnp.zeros((x.shape[0], hidden), x.dtype)
        states, y = jax.lax.scan(body, (zeros,) * (2 if cell == "lstm" else 1), projected)
        return states[0] if last else y.swapaxes(0, 1)

    return over_time


# ---- packages ----


def cases_of_modules(arguments: argparse.Namespace) -> Iterator[Case]:
    """A module of bppsa_cupy.torch or a function of bppsa_cupy.jax, against our network and the framework's
    layer or loop."""
    package, more = arguments.name, {}
    if package == "torch":
        more = {"batch_first": arguments.batch_first}
    sizes = [(QUICK_STEPS, 4, 2)] if arguments.quick else MODULE_SIZES
    for cell, (steps, hidden, batch) in itertools.product(arguments.cells, sizes):
        options = {
            "cell": cell, "device": arguments.device, "steps": steps, "hidden": hidden, "batch": batch,
        }  # fmt: skip
        rivals = {"our network": Rival(partial(network_step, **options), both=False)}
        title = f"{cell.upper()}: T={steps} H={hidden} B={batch}"
        if package == "torch":
            title = title.replace(":", ", (B, T, F):" if arguments.batch_first else ", (T, B, F):")
            if package in arguments.against:
                name = "torch.nn with cuDNN" if arguments.device == "cuda" else "torch.nn"
                rivals[name] = torch_rival(partial(module_step, **options, **more, package="torch.nn"))
            ours = partial(module_step, **options, **more, package="bppsa_cupy.torch")
        else:
            if package in arguments.against:
                rivals["jax.lax.scan"] = jax_rival(partial(function_step, **options, scan=True), both=False)
            ours = partial(function_step, **options)
        yield Case(title, ours, rivals, quantities={OVERALL: "step"})


def make_layer(cell: str, device: str, steps: int, hidden: int) -> Sequential:
    """One recurrent layer of as many units as features."""
    return Sequential([LAYERS[cell](hidden, hidden)], (steps, hidden), device=device)


def make_arrays(steps: int, hidden: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """An input and a gradient with respect to the output, (B, T, H)."""
    generator = np.random.default_rng(0)
    x, gradient = generator.standard_normal((2, batch, steps, hidden), dtype=np.float32)
    return x, gradient


def network_step(cell: str, device: str, steps: int, hidden: int, batch: int) -> Step:
    """Our network's, on the memory of its last pass; timed run by run, as modules are."""
    network = make_layer(cell, device, steps, hidden)
    x, gradient = map(network.device.asarray, make_arrays(steps, hidden, batch))

    def run_step() -> None:
        network.forward(x, into=network.last_pass)
        network.backward(gradient)

    def result() -> dict[str, np.ndarray]:
        host = network.device.to_host
        return {name[2:]: np.array(host(array)) for name, array in network.gradients.items()}

    return Step({OVERALL: run_step}, result, network.device, reset=_nothing)


def module_step(
    cell: str, device: str, steps: int, hidden: int, batch: int, package: str, batch_first: bool
) -> Step:
    """A module of a package by PyTorch's autograd, with the same parameters."""
    import torch

    import bppsa_cupy.torch
    from bppsa_cupy.tools.machine import torch_device
    from bppsa_cupy.tools.torch_modules import to_numpy

    modules: Any = bppsa_cupy.torch if package == "bppsa_cupy.torch" else torch.nn
    ours = get_device(device)
    where = torch_device(ours)
    module = getattr(modules, cell.upper())(hidden, hidden, batch_first=batch_first).to(where)
    state = make_layer(cell, "host", steps, hidden).state_dict()
    module.load_state_dict({name[2:]: torch.tensor(array) for name, array in state.items()})
    arrays = (torch.tensor(array, device=where) for array in make_arrays(steps, hidden, batch))
    x, gradient = (array if batch_first else array.transpose(0, 1).contiguous() for array in arrays)

    def result() -> dict[str, np.ndarray]:
        return {name: to_numpy(parameter.grad) for name, parameter in module.named_parameters()}

    def run_step() -> None:
        module(x)[0].backward(gradient)

    return Step({OVERALL: run_step}, result, ours, reset=module.zero_grad)


def function_step(cell: str, device: str, steps: int, hidden: int, batch: int, scan: bool = False) -> Step:
    """A function of bppsa_cupy.jax, or the cell by jax.lax.scan, compiled by jax.jit."""
    import jax

    import bppsa_cupy.jax

    where = jax.devices("gpu" if device == "cuda" else "cpu")[0]
    state = make_layer(cell, "host", steps, hidden).state_dict()
    params = {name[2:]: array for name, array in state.items()}
    arrays = jax.device_put((params, *make_arrays(steps, hidden, batch)), where)
    layer = None if scan else getattr(bppsa_cupy.jax, cell.upper())(hidden, hidden)
    over_time = scan_of(cell, hidden) if layer is None else lambda params, x: layer(params, x)[0]
    results: dict[str, Any] = {}

    def passes(params: Any, x: Any, gradient: Any) -> Any:
        _, pull = jax.vjp(lambda weights: over_time(weights, x), params)
        return pull(gradient)[0]

    step = jax.jit(passes)

    def run_step() -> None:
        results.update(jax.block_until_ready(step(*arrays)))

    return Step(
        {OVERALL: run_step},
        lambda: {name: np.asarray(array) for name, array in results.items()},
        get_device(device),
    )


def _nothing() -> None:
    """The reset of a step that changes nothing that the next one reads."""
