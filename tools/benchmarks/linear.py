"""A linear recurrence forward and back beside PyTorch's and JAX's ways, and a copy of its arrays."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from bppsa_cupy.devices import get_device
from bppsa_cupy.timescan.linear_scan import ScanGradients, linear_scan, linear_scan_backward
from bppsa_cupy.tools.benchmarks.harness import (
    Ask,
    BenchmarkError,
    Measurement,
    Row,
    Side,
    interleave,
    quartiles,
    require_equal,
    side_process,
    timed_row,
)
from bppsa_cupy.tools.benchmarks.linear_layers import LAYERS, JaxLayer, OurLayer, OurProducts, TorchLayer
from bppsa_cupy.tools.benchmarks.workload import OVERALL, Lap, Workload

AGAINST = ("torch", "jax", "copy")
#: Several rivals may be named.
SEVERAL = AGAINST

#: (B, T, H): those whose arrays are of at most MOST_BYTES, the longest with one sample and few units.
SIZES = (
    *((batch, steps, hidden) for steps in (1000, 30_000) for batch in (1, 16) for hidden in (64, 256, 1024)),
    (1, 1_000_000, 64),
)
MOST_BYTES = 1 << 29
#: Of layers, which hold several arrays of such a size.
MOST_BYTES_OF_LAYERS = 1 << 28
#: What stands beside our time without being a rival.
LABELS = {"copy": "np.copyto", "products": "its products alone"}
#: Steps up to which PyTorch's loop is worth waiting for.
LOOPED = 30_000
#: Seconds of samples of a rival and us, of which each has a few in any case; of a rival's start: imports,
#: arrays, compilation and two runs.
LIMIT_SECONDS, START_SECONDS = 8, 25
#: A rival that takes FAR times as long as the best one before it is timed once; one that takes so many
#: seconds already where it takes NEAR times as long.
FAR, NEAR, LONG_SECONDS = 10, 2, 2
#: Of norms: logarithms lose digits.
TOLERANCE = 1e-2
#: Elements of a result that are compared.
COMPARED = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--steps, --case."""
    parser.add_argument("--steps", type=int, help="the cases of so many steps alone (default: all)")
    parser.add_argument(
        "--case", choices=("scan", *LAYERS), help="the scan alone, or a layer on it (default: all)"
    )


def run(arguments: argparse.Namespace) -> Iterator[list[Row]]:
    """Forward and back of all sizes, against each rival; with --quick of a small one."""
    for layer in (None, *LAYERS):
        if arguments.case not in (None, layer or "scan"):
            continue
        most = MOST_BYTES if layer is None else MOST_BYTES_OF_LAYERS
        for batch, steps, hidden in [(2, 50, 8)] if arguments.quick else SIZES:
            if 4 * batch * steps * hidden <= most and arguments.steps in (None, steps):
                yield _rows(arguments, layer, {"batch": batch, "steps": steps, "hidden": hidden})


def _rows(arguments: argparse.Namespace, layer: str | None, sizes: Mapping[str, int]) -> list[Row]:
    """A rival at a time, so that two sides' arrays are there at once."""
    case = f"B={sizes['batch']} T={sizes['steps']} H={sizes['hidden']}"
    threads, rows, best = arguments.threads, [], math.inf
    sample_seconds = 0.0 if arguments.quick else 0.02
    given: dict[str, Any] = dict(sizes)
    kinds: dict[str, Callable[..., Workload]] = {"torch": TorchScan, "jax": JaxScan, "copy": Copies}
    mine: Callable[..., Workload] = OurScan
    if layer is not None:
        case, given["layer"], mine = f"{layer} {case}", layer, OurLayer
        kinds = {"torch": TorchLayer, "jax": JaxLayer, "products": OurProducts}
    with side_process(
        "ours", Side(mine, {**given, "device": arguments.device}, threads), sample_seconds
    ) as ours:
        own = ours("build")
        for name, way in _rivals(arguments.against, sizes["steps"], layer):
            options = {**given, **({"device": arguments.device} if name == "products" else {"way": way})}
            side = Side(kinds[name], options, threads, (name,) if way else (), {"NPROC": str(threads)})
            label = f"{'PyTorch' if name == 'torch' else 'JAX'}, {way}" if way else LABELS[name]
            note: str | None = None
            far = max(NEAR * best, min(FAR * best, LONG_SECONDS)) if way else math.inf
            try:
                with side_process(label, side, sample_seconds) as theirs:
                    found, once = _beside(ours, theirs, far, arguments.repeats)
                if way == "logcumsumexp":  # Over many steps sums have lost what a difference of two tells.
                    require_equal(label, found[0].result, found[1].result, TOLERANCE)
            except BenchmarkError as error:
                if not way:
                    raise
                # What a rival cannot do, for lack of memory, of an implementation, of time or of digits, is
                # told in its row's place.
                spread, note = {"ours": quartiles([own])}, f"left out: {str(error)[-200:]}"
                rows.append(Row(case, OVERALL, own, None, f"{label} (left out)", spread=spread, note=note))
                continue
            if way:
                require_equal(f"{case}, {label}", found[0].result, found[1].result, TOLERANCE)
            seconds, rivals = (one.seconds[OVERALL] for one in found)
            if once:
                label, note = f"{label} (once)", f"timed once: the best rival took {best:.3g} s"
            elif way:
                best = min(best, float(np.median(rivals)))
            rows.append(timed_row(case, OVERALL, seconds, rivals, label, note=note))
    return rows


def _beside(ours: Ask, theirs: Ask, far: float, repeats: int) -> tuple[list[Measurement], bool]:
    """Ours and a rival side by side, and whether it was timed once, for it took longer than `far`."""
    seconds = theirs("build", START_SECONDS + 2 * min(far, START_SECONDS))
    if seconds <= far:
        return list(interleave({"ours": ours, "theirs": theirs}, repeats, LIMIT_SECONDS).values()), False
    own = ours("sample")[OVERALL]
    return [
        Measurement({OVERALL: [own]}, ours("result")),
        Measurement({OVERALL: [seconds]}, theirs("result")),
    ], True


def _rivals(against: list[str], steps: int, layer: str | None = None) -> Iterator[tuple[str, str]]:
    """The ways of each rival, those that are best as a rule first; beside the scan a copy of its arrays,
    beside a layer its products alone."""
    if "jax" in against:
        yield "jax", "lax.scan"
        yield "jax", "associative_scan"
    if "torch" in against:
        yield "torch", "associative_scan"
        if layer != "LRU":
            yield "torch", "logcumsumexp"
        if steps <= LOOPED:
            yield "torch", "loop"
    yield ("copy" if layer is None else "products"), ""


def made(batch: int, steps: int, hidden: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """a in (0.5, 1), b in (0, 1), as logarithms take them, and a gradient."""
    rng, shape = np.random.default_rng(0), (batch, steps, hidden)
    a, b, gradient = (rng.random(shape, "float32") for _ in range(3))
    return 0.5 + a / 2, b + np.float32(1e-3), gradient


def compared(**arrays: Any) -> dict[str, np.ndarray]:
    """Some elements of each array."""
    flat = {name: np.asarray(array).reshape(-1) for name, array in arrays.items()}
    return {name: array[:: max(1, array.size // COMPARED)].copy() for name, array in flat.items()}


class OurScan(Workload):
    """`bp.linear_scan` and its gradients, into arrays that are there."""

    def __init__(self, batch: int, steps: int, hidden: int, device: str) -> None:
        self.device = get_device(device)
        self.a, self.b, self.gradient = map(self.device.asarray, made(batch, steps, hidden))
        self.h = self.device.zeros(self.b.shape, self.b.dtype)
        like = self.device.zeros
        self.out = ScanGradients(
            like(self.b.shape, self.b.dtype), like(self.b.shape, self.b.dtype),
            like((batch, hidden), self.b.dtype),
        )  # fmt: skip

    def run(self, lap: Lap) -> None:
        linear_scan(self.a, self.b, out=self.h)
        linear_scan_backward(self.a, self.h, self.gradient, out=self.out)

    def result(self) -> dict[str, np.ndarray]:
        to_host = self.device.to_host
        return compared(h=to_host(self.h), a=to_host(self.out.a), b=to_host(self.out.b))


class Copies(Workload):
    """Copies that read and write as many bytes as a scan must, forward 3 arrays and back 5: four copies."""

    def __init__(self, batch: int, steps: int, hidden: int, way: str) -> None:
        self.device = get_device("host")
        self.source = made(batch, steps, hidden)[0]
        self.target = np.zeros_like(self.source)

    def run(self, lap: Lap) -> None:
        for _ in range(4):
            np.copyto(self.target, self.source)

    def result(self) -> dict[str, np.ndarray]:
        return {}


class TorchScan(Workload):
    """PyTorch: a loop over steps, the form by logarithms of minGRU's code, or its prototype of a scan."""

    def __init__(self, batch: int, steps: int, hidden: int, way: str) -> None:
        import torch

        self.device = get_device("host")
        self.a, self.b, self.gradient = map(torch.from_numpy, made(batch, steps, hidden))
        self.a.requires_grad_(), self.b.requires_grad_()
        self.scan = {
            "loop": self.loop,
            "logcumsumexp": self.logarithms,
            "associative_scan": self.associative,
        }[way]
        self.torch = torch

    def loop(self, a: Any, b: Any) -> Any:
        # A view of a step as a[:, t] is would have an array of all steps as its gradient.
        factors, terms = a.unbind(1), b.unbind(1)
        states = [terms[0]]
        for factor, term in zip(factors[1:], terms[1:], strict=True):
            states.append(factor * states[-1] + term)
        return self.torch.stack(states, 1)

    def logarithms(self, a: Any, b: Any) -> Any:
        sums = a.log().cumsum(1)
        return (sums + (b.log() - sums).logcumsumexp(1)).exp()

    def associative(self, a: Any, b: Any) -> Any:
        from torch._higher_order_ops.associative_scan import associative_scan

        def combine(x: Any, y: Any) -> Any:
            return x[0] * y[0], y[0] * x[1] + y[1]

        return associative_scan(combine, (a, b), dim=1, combine_mode="generic")[1]

    def run(self, lap: Lap) -> None:
        self.h = self.scan(self.a, self.b)
        self.found = self.torch.autograd.grad(self.h, (self.a, self.b), self.gradient)

    def result(self) -> dict[str, np.ndarray]:
        return compared(h=self.h.detach(), a=self.found[0], b=self.found[1])


class JaxScan(Workload):
    """JAX, jitted: `lax.scan` over steps, or `lax.associative_scan`."""

    def __init__(self, batch: int, steps: int, hidden: int, way: str) -> None:
        import jax
        import jax.numpy as jnp

        self.device, self.wait = get_device("host"), jax.block_until_ready
        self.given = jax.device_put(made(batch, steps, hidden), jax.devices("cpu")[0])

        def by_steps(a: Any, b: Any) -> Any:
            def step(state: Any, row: Any) -> Any:
                state = row[0] * state + row[1]
                return state, state

            rows = jnp.moveaxis(a, 1, 0), jnp.moveaxis(b, 1, 0)
            return jnp.moveaxis(jax.lax.scan(step, jnp.zeros_like(b[:, 0]), rows)[1], 0, 1)

        def associative(a: Any, b: Any) -> Any:
            def combine(x: Any, y: Any) -> Any:
                return x[0] * y[0], y[0] * x[1] + y[1]

            return jax.lax.associative_scan(combine, (a, b), axis=1)[1]

        scan = by_steps if way == "lax.scan" else associative

        def step(a: Any, b: Any, gradient: Any) -> Any:
            h, go_back = jax.vjp(scan, a, b)
            return h, *go_back(gradient)

        self.step = jax.jit(step)

    def run(self, lap: Lap) -> None:
        self.found = self.wait(self.step(*self.given))

    def result(self) -> dict[str, np.ndarray]:
        return compared(h=self.found[0], a=self.found[1], b=self.found[2])
