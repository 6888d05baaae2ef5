"""Linear recurrences, forward and backward, against PyTorch and JAX: the scan alone, MinGRU and LRU."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from bppsa_cupy.devices import get_device
from bppsa_cupy.layers import LRU, LinearRecurrent, MinGRU
from bppsa_cupy.network import Sequential
from bppsa_cupy.timescan.linear_scan import ScanGradients, linear_scan, linear_scan_backward
from bppsa_cupy.tools.benchmarks.harness import OVERALL, Case, Rival, Step, jax_rival, torch_rival

#: MinGRU's candidates are positive, as scans of logarithms take them.
LAYERS: dict[str, Callable[[int], LinearRecurrent]] = {
    "MinGRU": lambda hidden: MinGRU(hidden, hidden, candidate="positive"),
    "LRU": lambda hidden: LRU(hidden, hidden, r_min=0.5, r_max=0.99),
}
#: (B, T, H): those whose arrays are of at most MOST_BYTES, the longest with one sample and few units.
SIZES = (
    *((batch, steps, hidden) for steps in (1000, 30_000) for batch in (1, 16) for hidden in (64, 256, 1024)),
    (1, 1_000_000, 64),
)
#: Of the scan, and of layers, which hold several arrays of such a size.
MOST_BYTES = {"scan": 1 << 29, "MinGRU": 1 << 28, "LRU": 1 << 28}
#: Steps up to which a loop in PyTorch is worth waiting for.
LOOPED = 30_000
#: Of norms: logarithms lose digits.
TOLERANCE = 1e-2
#: Elements of a result that are compared.
COMPARED = 4096


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """A case per size, layer and rival, so that few sides' arrays are there at once."""
    for layer, most in MOST_BYTES.items():
        for batch, steps, hidden in [(2, 50, 8)] if arguments.quick else SIZES:
            if 4 * batch * steps * hidden > most:
                continue
            sizes: dict[str, Any] = {"layer": layer, "batch": batch, "steps": steps, "hidden": hidden}
            name = f"{'' if layer == 'scan' else f'{layer} '}B={batch} T={steps} H={hidden}"
            ours = partial(our_step, **sizes, device=arguments.device)
            for rival, side in _rivals(arguments, sizes):
                yield Case(name, ours, {rival: side}, tolerance=TOLERANCE)


def _rivals(arguments: argparse.Namespace, sizes: dict[str, Any]) -> Iterator[tuple[str, Rival]]:
    layer = sizes["layer"]
    if "jax" in arguments.against:
        for way in ("lax.scan", "associative_scan"):
            yield f"JAX, {way}", jax_rival(partial(jax_step, **sizes, way=way), both=False)
    if "torch" in arguments.against:
        for way in ("associative_scan", "logcumsumexp", "loop"):
            if (way == "loop" and sizes["steps"] > LOOPED) or (way, layer) == ("logcumsumexp", "LRU"):
                continue
            yield f"PyTorch, {way}", torch_rival(partial(torch_step, **sizes, way=way), both=False)
    if layer == "scan" and "copy" in arguments.against:
        yield "np.copyto", Rival(partial(copy_step, **sizes), both=False, compared=False)


def make_arrays(layer: str, batch: int, steps: int, hidden: int) -> dict[str, np.ndarray]:
    """Parameters, inputs and the gradient with respect to the output, float32. The scan's inputs are a in
    (0.5, 1) and b in (0, 1), as logarithms take them."""
    rng, shape = np.random.default_rng(0), (batch, steps, hidden)
    if layer == "scan":
        a, b, gradient = (rng.random(shape, "float32") for _ in range(3))
        return {"a": 0.5 + a / 2, "b": b + np.float32(1e-3), "gradient": gradient}
    arrays = LAYERS[layer](hidden).initialize(rng)
    arrays |= {name: rng.standard_normal(shape) for name in ("x", "gradient")}
    return {name: array.astype("float32") for name, array in arrays.items()}


def compared(**arrays: Any) -> dict[str, np.ndarray]:
    """Some elements of each array."""
    flat = {name: np.asarray(array).reshape(-1) for name, array in arrays.items()}
    return {name: array[:: max(1, array.size // COMPARED)].copy() for name, array in flat.items()}


def our_step(layer: str, batch: int, steps: int, hidden: int, device: str) -> Step:
    """`bp.linear_scan` and its gradients into arrays that are there, or a network of one layer."""
    arrays = make_arrays(layer, batch, steps, hidden)
    if layer != "scan":
        return _our_layer(layer, arrays, steps, hidden, device)
    where = get_device(device)
    a, b, gradient = (where.asarray(arrays[name]) for name in ("a", "b", "gradient"))
    h, by_a, by_b = (where.zeros(b.shape, b.dtype) for _ in range(3))
    out = ScanGradients(by_a, by_b, where.zeros((batch, hidden), b.dtype))

    def run_step() -> None:
        linear_scan(a, b, out=h)
        linear_scan_backward(a, h, gradient, out=out)

    host = where.to_host
    return Step({OVERALL: run_step}, lambda: compared(y=host(h), a=host(by_a), b=host(by_b)), where)


def _our_layer(layer: str, arrays: dict[str, np.ndarray], steps: int, hidden: int, device: str) -> Step:
    net = Sequential([LAYERS[layer](hidden)], (steps, hidden), device=device)
    net.load_state_dict({f"0.{name}": arrays[name] for name in net.layers[0].parameter_shapes()})
    x, gradient = (net.device.asarray(arrays[name]) for name in ("x", "gradient"))
    results: dict[str, Any] = {}

    def run_step() -> None:
        results["y"] = net.forward(x, into=net.last_pass)
        results["x"] = net.backward(gradient, input_gradient=True)

    def result() -> dict[str, np.ndarray]:
        gradients = {name.removeprefix("0."): array for name, array in net.gradients.to_host().items()}
        return compared(**{name: net.device.to_host(array) for name, array in results.items()}, **gradients)

    return Step({OVERALL: run_step}, result, net.device)


def copy_step(layer: str, batch: int, steps: int, hidden: int) -> Step:
    """Four copies: they move as many bytes as a scan must, 3 arrays forward and 5 backward."""
    source = make_arrays(layer, batch, steps, hidden)["a"]
    target = np.zeros_like(source)

    def copy_arrays() -> None:
        for _ in range(4):
            np.copyto(target, source)

    return Step({OVERALL: copy_arrays}, dict, get_device("host"))


def torch_step(layer: str, batch: int, steps: int, hidden: int, way: str) -> Step:
    """PyTorch: a loop over steps, the form by logarithms of minGRU's code, or its prototype of a scan."""
    import torch

    arrays = {k: torch.from_numpy(array) for k, array in make_arrays(layer, batch, steps, hidden).items()}
    gradient, results = arrays.pop("gradient"), dict[str, Any]()
    leaves = {name: array.requires_grad_() for name, array in arrays.items()}

    def scan(a: Any, b: Any) -> Any:
        if way == "logcumsumexp":
            sums = a.log().cumsum(1)
            return (sums + (b.log() - sums).logcumsumexp(1)).exp()
        if way == "loop":
            # A view of a step as a[:, t] is would have an array of all steps as its gradient.
            factors, terms = a.unbind(1), b.unbind(1)
            states = [terms[0]]
            for factor, term in zip(factors[1:], terms[1:], strict=True):
                states.append(factor * states[-1] + term)
            return torch.stack(states, 1)
        from torch._higher_order_ops.associative_scan import associative_scan

        def combine(x: Any, y: Any) -> Any:
            return x[0] * y[0], y[0] * x[1] + y[1]

        return associative_scan(combine, (a, b), dim=1, combine_mode="generic")[1]

    def min_gru(x: Any, weight_ih_l0: Any, bias_ih_l0: Any) -> Any:
        functional = torch.nn.functional
        value, gate = functional.linear(x, weight_ih_l0, bias_ih_l0).chunk(2, -1)
        if way != "logcumsumexp":
            z = gate.sigmoid()
            return scan(1 - z, z * torch.where(value >= 0, value + 0.5, value.sigmoid()))
        softplus = functional.softplus
        log_g = torch.where(value >= 0, (value.relu() + 0.5).log(), -softplus(-value))
        sums = -softplus(gate).cumsum(1)
        return (sums + (log_g - softplus(-gate) - sums).logcumsumexp(1)).exp()

    def lru(x: Any, **w: Any) -> Any:
        factor = torch.exp(-torch.exp(w["nu_log_l0"]) + 1j * torch.exp(w["theta_log_l0"]))
        inward = torch.exp(w["gamma_log_l0"])[:, None] * torch.complex(w["B_re_l0"], w["B_im_l0"])
        term = x.to(inward.dtype) @ inward.T
        h = scan(factor.expand(term.shape), term)
        return (h @ torch.complex(w["C_re_l0"], w["C_im_l0"]).T).real + w["D_l0"] * x

    calls: dict[str, Callable[..., Any]] = {"scan": scan, "MinGRU": min_gru, "LRU": lru}
    call = calls[layer]

    def run_step() -> None:
        results["y"] = y = call(**leaves)
        gradients = torch.autograd.grad(y, tuple(leaves.values()), gradient)
        results.update(zip(leaves, gradients, strict=True))

    return Step(
        {OVERALL: run_step},
        lambda: compared(**{k: y.detach() for k, y in results.items()}),
        get_device("host"),
    )


def jax_step(layer: str, batch: int, steps: int, hidden: int, way: str) -> Step:
    """JAX, jitted: `lax.scan` over steps, or `lax.associative_scan`."""
    import jax
    import jax.numpy as jnp

    arrays = jax.device_put(make_arrays(layer, batch, steps, hidden), jax.devices("cpu")[0])
    gradient, results = arrays.pop("gradient"), dict[str, Any]()

    def scan(a: Any, b: Any) -> Any:
        if way == "associative_scan":
            return jax.lax.associative_scan(lambda x, y: (x[0] * y[0], y[0] * x[1] + y[1]), (a, b), axis=1)[1]

        def step(state: Any, row: Any) -> Any:
            state = row[0] * state + row[1]
            return state, state

        rows = a.swapaxes(0, 1), b.swapaxes(0, 1)
        return jax.lax.scan(step, jnp.zeros_like(b[:, 0]), rows)[1].swapaxes(0, 1)

    def min_gru(arrays: Any) -> Any:
        value, gate = jnp.split(arrays["x"] @ arrays["weight_ih_l0"].T + arrays["bias_ih_l0"], 2, -1)
        z = jax.nn.sigmoid(gate)
        return scan(1 - z, z * jnp.where(value >= 0, value + 0.5, jax.nn.sigmoid(value)))

    def lru(arrays: Any) -> Any:
        factor = jnp.exp(-jnp.exp(arrays["nu_log_l0"]) + 1j * jnp.exp(arrays["theta_log_l0"]))
        inward = jnp.exp(arrays["gamma_log_l0"])[:, None] * (arrays["B_re_l0"] + 1j * arrays["B_im_l0"])
        term = arrays["x"] @ inward.real.T + 1j * (arrays["x"] @ inward.imag.T)
        h = scan(jnp.broadcast_to(factor, term.shape), term)
        return h.real @ arrays["C_re_l0"].T - h.imag @ arrays["C_im_l0"].T + arrays["D_l0"] * arrays["x"]

    call: Callable[[Any], Any] = {
        "scan": lambda arrays: scan(arrays["a"], arrays["b"]),
        "MinGRU": min_gru,
        "LRU": lru,
    }[layer]

    def passes(arrays: Any, gradient: Any) -> Any:
        y, pull = jax.vjp(call, arrays)
        return y, pull(gradient)[0]

    step = jax.jit(passes)

    def run_step() -> None:
        y, gradients = jax.block_until_ready(step(arrays, gradient))
        results.update(y=y, **gradients)

    return Step({OVERALL: run_step}, lambda: compared(**results), get_device("host"))
