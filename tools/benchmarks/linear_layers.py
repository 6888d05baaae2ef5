"""MinGRU and LRU, forward and back to input and parameters: ours, PyTorch's ways, JAX's, and our products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bppsa_cupy.devices import get_device
from bppsa_cupy.layers import LRU, LinearRecurrent, MinGRU
from bppsa_cupy.network import Sequential
from bppsa_cupy.timescan import products
from bppsa_cupy.tools.benchmarks.workload import Lap, Workload

#: MinGRU's candidates are positive, as scans of logarithms take them.
LAYERS: dict[str, Callable[[int], LinearRecurrent]] = {
    "MinGRU": lambda hidden: MinGRU(hidden, hidden, candidate="positive"),
    "LRU": lambda hidden: LRU(hidden, hidden, r_min=0.5, r_max=0.99),
}


def given(layer: str, batch: int, steps: int, hidden: int) -> dict[str, np.ndarray]:
    """Parameters, input and the gradient by the output, float32."""
    rng = np.random.default_rng(0)
    arrays = LAYERS[layer](hidden).initialize(rng)
    arrays |= {name: rng.standard_normal((batch, steps, hidden)) for name in ("x", "gradient")}
    return {name: array.astype("float32") for name, array in arrays.items()}


def _results(found: dict[str, Any]) -> dict[str, np.ndarray]:
    """Some elements of each array."""
    flat = {name: np.asarray(array).reshape(-1) for name, array in found.items()}
    return {name: array[:: max(1, array.size // 4096)].copy() for name, array in flat.items()}


class OurLayer(Workload):
    """A network of the layer alone."""

    def __init__(self, layer: str, batch: int, steps: int, hidden: int, device: str) -> None:
        arrays = given(layer, batch, steps, hidden)
        self.net = Sequential([LAYERS[layer](hidden)], (steps, hidden), device=device)
        self.net.load_state_dict(
            {f"0.{name}": arrays[name] for name in self.net.layers[0].parameter_shapes()}
        )
        self.device = self.net.device
        self.x, self.gradient = (self.device.asarray(arrays[name]) for name in ("x", "gradient"))

    def run(self, lap: Lap) -> None:
        self.y = self.net.forward(self.x, into=self.net.last_pass)
        self.by_x = self.net.backward(self.gradient, input_gradient=True)

    def result(self) -> dict[str, np.ndarray]:
        own = self.net.gradients.to_host()
        found = {name.removeprefix("0."): array for name, array in own.items()}
        return _results({"y": self.device.to_host(self.y), "x": self.device.to_host(self.by_x), **found})


class OurProducts(Workload):
    """The matrix products of a step of the layer, and nothing else."""

    def __init__(self, layer: str, batch: int, steps: int, hidden: int, device: str) -> None:
        self.device, rng = get_device(device), np.random.default_rng(0)
        rows = batch * steps

        def array(*shape: int) -> Any:
            return self.device.asarray(rng.random(shape, "float32"))

        x, projected, weight = array(rows, hidden, 1), array(rows, 2 * hidden, 1), array(2 * hidden, hidden)
        shapes = (2 * hidden, hidden), (hidden, 2 * hidden)
        size = max(products.workspace_size(self.device, rows, 1, *shape) for shape in shapes)
        sums, by_x, by_weight = array(size), array(rows, hidden, 1), array(2 * hidden, hidden)
        self.launches = [
            products.project(self.device, x, weight, None, projected),
            products.project(self.device, projected, weight, None, by_x, transposed=True),
            products.weight_gradient(self.device, projected, 0, x, sums, by_weight, None),
        ]
        if layer == "LRU":  # as much again from the states to what is put out
            turned, by_turned = array(hidden, 2 * hidden), array(hidden, 2 * hidden)
            self.launches += [
                products.project(self.device, projected, turned, None, by_x),
                products.project(self.device, x, turned, None, projected, transposed=True),
                products.weight_gradient(self.device, x, 0, projected, sums, by_turned, None),
            ]

    def run(self, lap: Lap) -> None:
        for launch in self.launches:
            launch()

    def result(self) -> dict[str, np.ndarray]:
        return {}


class TorchLayer(Workload):
    """PyTorch: a loop over steps, minGRU's form by logarithms, or its prototype of a scan."""

    def __init__(self, layer: str, batch: int, steps: int, hidden: int, way: str) -> None:
        import torch

        self.torch, self.device = torch, get_device("host")
        arrays = {name: torch.from_numpy(array) for name, array in given(layer, batch, steps, hidden).items()}
        self.gradient = arrays.pop("gradient")
        self.leaves = {name: array.requires_grad_() for name, array in arrays.items()}
        self.way, self.call = way, self.min_gru if layer == "MinGRU" else self.lru

    def scan(self, a: Any, b: Any) -> Any:
        if self.way == "loop":
            factors, terms = a.unbind(1), b.unbind(1)
            states = [terms[0]]
            for factor, term in zip(factors[1:], terms[1:], strict=True):
                states.append(factor * states[-1] + term)
            return self.torch.stack(states, 1)
        from torch._higher_order_ops.associative_scan import associative_scan

        def combine(x: Any, y: Any) -> Any:
            return x[0] * y[0], y[0] * x[1] + y[1]

        return associative_scan(combine, (a, b), dim=1, combine_mode="generic")[1]

    def min_gru(self, x: Any, weight_ih_l0: Any, bias_ih_l0: Any) -> Any:
        functional = self.torch.nn.functional
        hidden, gate = functional.linear(x, weight_ih_l0, bias_ih_l0).chunk(2, -1)
        if self.way != "logcumsumexp":
            z = gate.sigmoid()
            return self.scan(1 - z, z * self.torch.where(hidden >= 0, hidden + 0.5, hidden.sigmoid()))
        softplus = functional.softplus
        log_g = self.torch.where(hidden >= 0, (hidden.relu() + 0.5).log(), -softplus(-hidden))
        sums = -softplus(gate).cumsum(1)
        return (sums + (log_g - softplus(-gate) - sums).logcumsumexp(1)).exp()

    def lru(self, x: Any, **own: Any) -> Any:
        complex_of, exp = self.torch.complex, self.torch.exp
        factor = exp(-exp(own["nu_log_l0"]) + 1j * exp(own["theta_log_l0"]))
        inward = exp(own["gamma_log_l0"])[:, None] * complex_of(own["B_re_l0"], own["B_im_l0"])
        term = x.to(inward.dtype) @ inward.T
        h = self.scan(factor.expand(term.shape), term)
        return (h @ complex_of(own["C_re_l0"], own["C_im_l0"]).T).real + own["D_l0"] * x

    def run(self, lap: Lap) -> None:
        self.y = self.call(**self.leaves)
        self.found = self.torch.autograd.grad(self.y, tuple(self.leaves.values()), self.gradient)

    def result(self) -> dict[str, np.ndarray]:
        return _results({"y": self.y.detach(), **dict(zip(self.leaves, self.found, strict=True))})


class JaxLayer(Workload):
    """JAX, jitted: `lax.scan` over steps, or `lax.associative_scan`."""

    def __init__(self, layer: str, batch: int, steps: int, hidden: int, way: str) -> None:
        import jax
        import jax.numpy as jnp

        self.device, self.wait = get_device("host"), jax.block_until_ready
        arrays = jax.device_put(given(layer, batch, steps, hidden), jax.devices("cpu")[0])
        gradient = arrays.pop("gradient")

        def scan(a: Any, b: Any) -> Any:
            if way == "lax.scan":

                def step(state: Any, row: Any) -> Any:
                    state = row[0] * state + row[1]
                    return state, state

                rows = a.swapaxes(0, 1), b.swapaxes(0, 1)
                return jax.lax.scan(step, jnp.zeros_like(b[:, 0]), rows)[1].swapaxes(0, 1)
            return jax.lax.associative_scan(lambda x, y: (x[0] * y[0], y[0] * x[1] + y[1]), (a, b), axis=1)[1]

        def min_gru(own: Any) -> Any:
            hidden, gate = jnp.split(own["x"] @ own["weight_ih_l0"].T + own["bias_ih_l0"], 2, -1)
            z = jax.nn.sigmoid(gate)
            return scan(1 - z, z * jnp.where(hidden >= 0, hidden + 0.5, jax.nn.sigmoid(hidden)))

        def lru(own: Any) -> Any:
            factor = jnp.exp(-jnp.exp(own["nu_log_l0"]) + 1j * jnp.exp(own["theta_log_l0"]))
            inward = jnp.exp(own["gamma_log_l0"])[:, None] * (own["B_re_l0"] + 1j * own["B_im_l0"])
            term = own["x"] @ inward.real.T + 1j * (own["x"] @ inward.imag.T)
            h = scan(jnp.broadcast_to(factor, term.shape), term)
            return h.real @ own["C_re_l0"].T - h.imag @ own["C_im_l0"].T + own["D_l0"] * own["x"]

        call = min_gru if layer == "MinGRU" else lru

        def passes(own: Any, gradient: Any) -> Any:
            y, pull = jax.vjp(call, own)
            return y, pull(gradient)[0]

        self.step, self.given = jax.jit(passes), (arrays, gradient)

    def run(self, lap: Lap) -> None:
        self.y, self.found = self.wait(self.step(*self.given))

    def result(self) -> dict[str, np.ndarray]:
        return _results({"y": self.y, **self.found})
