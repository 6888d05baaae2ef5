"""What a calibration times: every kind of work of a backward pass, in small networks, batch by batch.

Products, matrix-vector products, VJPs, fills and transpositions run through the kernels that scans run
through. How much work each is, is what the cost model takes it for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.layers import AvgPool2d, Conv2d, Flatten, Linear, MaxPool2d, ReLU, Tanh
from bppsa_cupy.models import lenet5
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.plan import Budget, Chain, Element, Product, Step
from bppsa_cupy.plan.cost import step_cost
from bppsa_cupy.plan.product import multiply
from bppsa_cupy.plan.sizes import ChainSizes
from bppsa_cupy.scan.launches import Matrix, bind_product, bind_spmv
from bppsa_cupy.scan.maps import IndexMaps
from bppsa_cupy.tools.benchmarks.calibration_fit import Observation

#: Work beyond this is left out: bytes of values, and multiply-adds.
MOST_BYTES, MOST_MULTIPLY_ADDS = 1.5e8, 3e8

#: Samples of each piece of work; the quickest counts, as other work on the machine only adds.
SAMPLES = 4


def networks(device: Device, quick: bool) -> Iterator[Sequential]:
    """Networks whose layers and products are of every kind: dense and pruned, small and large."""
    options: dict[str, Any] = {"seed": 0, "device": device}
    if quick:
        layers = [Conv2d(2, 3, 3), ReLU(), MaxPool2d(2), Flatten(), Linear(27, 4), Tanh(), Linear(4, 4)]
        yield Sequential(layers, input_shape=(2, 8, 8), **options)
        return
    yield lenet5(**options)
    for kept, side in ((0.03, 32), (0.2, 8)):
        yield _pruned_network(kept, side, options)
    wide = [Linear(256, 256), Tanh(), Linear(256, 128), ReLU(), Linear(128, 128), Linear(128, 10)]
    yield Sequential(wide, input_shape=(256,), **options)
    yield Sequential(
        [AvgPool2d(2), Conv2d(16, 16, 3, padding=1), ReLU(), Conv2d(16, 32, 3, stride=2), Flatten()],
        input_shape=(16, 32, 32),
        **options,
    )


def _pruned_network(kept: float, side: int, options: dict[str, Any]) -> Sequential:
    """Convolutions that keep this part of their weights, and three poolings, on images of `side` pixels."""
    generator = np.random.default_rng(0)
    layers: list[Any] = []
    channels = 3
    for made in (32, None, 64, None, 128, 128, None, 256):
        if made is None:
            layers.append(MaxPool2d(2))
        else:
            mask = generator.random((made, channels, 3, 3)) < kept
            layers += [Conv2d(channels, made, 3, padding=1, mask=mask), ReLU()]
            channels = made
    layers += [Flatten(), Linear(channels * (side // 8) ** 2, 10)]
    return Sequential(layers, input_shape=(3, side, side), **options)


def observe(network: Sequential, batch: int, sample_seconds: float) -> Iterator[Observation]:
    """Every piece of work in a backward pass of `network` for a batch, timed."""
    device = network.device
    for chain in network.chains():
        elements = list(chain.elements)
        for element in elements:
            yield from _vector_product(device, network.dtype, element, batch, sample_seconds)
        products = []
        for nearer, farther in pairwise(elements):
            made = _product(device, network.dtype, nearer, farther, batch, sample_seconds)
            products.append(made[1] if made else None)
            if made:
                yield made[0]
        # Products of products, which fill in.
        for nearer_product, farther_product in zip(products, products[2:], strict=False):
            if nearer_product is not None and farther_product is not None:
                made = _product(device, network.dtype, nearer_product, farther_product, batch, sample_seconds)
                if made:
                    yield made[0]
                    yield from _vector_product(device, network.dtype, made[1], batch, sample_seconds)
    yield from _layers(network, batch, sample_seconds)


def overheads(device: Device, sample_seconds: float) -> tuple[float, float]:
    """Seconds of a bound launch and of a layer's VJP that have next to nothing to do: medians over kinds."""
    tiny = Sequential(
        [Conv2d(1, 2, 2), ReLU(), MaxPool2d(2, stride=1), Flatten(), Linear(8, 2), Tanh()],
        input_shape=(1, 4, 4),
        seed=0,
        device=device,
    )
    found = list(observe(tiny, 1, sample_seconds))
    launches = [o.seconds for o in found if o.kind not in ("vjp", "fill", "transpose")]
    calls = [o.seconds for o in found if o.kind in ("vjp", "fill")]
    return float(np.median(launches)), float(np.median(calls))


def _values(device: Device, dtype: np.dtype, element: Element, batch: int) -> Matrix:
    nnz = element.pattern.nnz
    return Matrix(element.pattern, _ones(device, dtype, (nnz,) if element.shared else (nnz, batch)))


def _ones(device: Device, dtype: np.dtype, shape: tuple[int, ...]) -> Array:
    array = device.empty(shape, dtype)
    array[...] = 1
    return array


def _vector_product(
    device: Device, dtype: np.dtype, element: Element, batch: int, sample_seconds: float
) -> Iterator[Observation]:
    """A CSR matrix times a batch of vectors."""
    step = Step(0, 0, 1, 2, "mv")
    if element.pattern.nnz * batch * dtype.itemsize > MOST_BYTES:
        return
    cost = step_cost(ChainSizes(Chain((element,))), step, Budget(batch, dtype.itemsize))
    matrix, maps = _values(device, dtype, element, batch), IndexMaps(device)
    rows, columns = element.pattern.shape
    x, y = _ones(device, dtype, (columns, batch)), device.empty((rows, batch), dtype)
    launch = bind_spmv(device, maps, matrix, x, None, y)
    seconds = launch_seconds(device, launch, sample_seconds)
    yield Observation("csr_mv", cost.multiply_adds, cost.bytes, seconds, batch)


def _product(
    device: Device, dtype: np.dtype, nearer: Element, farther: Element, batch: int, sample_seconds: float
) -> tuple[Observation, Element] | None:
    """The product of two neighbours, timed, and what it makes; None where it is too large."""
    step = Step(0, 1, 2, 3, "mm")
    cost = step_cost(ChainSizes(Chain((nearer, farther))), step, Budget(batch, dtype.itemsize))
    if cost.bytes > MOST_BYTES or cost.multiply_adds > MOST_MULTIPLY_ADDS:
        return None
    product: Product = multiply(farther.pattern, nearer.pattern)
    made = Element("product", product.pattern, nearer.shared and farther.shared)
    a, b = (_values(device, dtype, element, batch) for element in (farther, nearer))
    c = _values(device, dtype, made, batch).values
    launch = bind_product(device, IndexMaps(device), product, a, b, c, batch)
    seconds = launch_seconds(device, launch, sample_seconds)
    width = 1 if made.shared else batch
    return Observation(product.kind, cost.multiply_adds, cost.bytes, seconds, width), made


def _layers(network: Sequential, batch: int, sample_seconds: float) -> Iterator[Observation]:
    """The VJP of each layer, the fill of its Jacobian, and moving its gradient into a scan."""
    device, dtype = network.device, network.dtype
    x = _ones(device, dtype, (batch, *network.input_shape))
    network.forward(x)
    current = network.last_pass
    assert current is not None
    for index, layer in enumerate(network.layers):
        jacobian, state = network.jacobians[index], current.layers[index]
        if jacobian is None:
            continue
        shape, nnz = network.shapes[index], jacobian.pattern.nnz
        gradient = _ones(device, dtype, (batch, *network.shapes[index + 1]))
        inputs, outputs = math.prod(shape), math.prod(network.shapes[index + 1])
        seconds = call_seconds(device, lambda: layer.vjp(state, gradient), sample_seconds)  # noqa: B023
        terms = layer.vjp_multiply_adds(shape)
        terms = (nnz if terms is None else terms) * batch
        yield Observation("vjp", terms, (inputs + outputs) * batch * dtype.itemsize, seconds)
        count = nnz if jacobian.shared else nnz * batch
        if count * dtype.itemsize <= MOST_BYTES:
            values = device.empty((nnz,) if jacobian.shared else (nnz, batch), dtype)
            fill = lambda: jacobian.fill(device, state.parameters, state.saved, values)  # noqa: B023, E731
            seconds = call_seconds(device, fill, sample_seconds)
            yield Observation("fill", count, count * dtype.itemsize + 4 * nnz, seconds)
        flat, vector = gradient.reshape(batch, -1), device.empty((outputs, batch), dtype)

        def move(flat: Array = flat, vector: Array = vector) -> None:
            vector[...] = flat.T

        seconds = call_seconds(device, move, sample_seconds)
        yield Observation("transpose", 0, 2 * outputs * batch * dtype.itemsize, seconds)


def launch_seconds(device: Device, launch: Launch, sample_seconds: float) -> float:
    """Seconds of one bound launch among many of a sequence, which on CUDA is a graph."""
    number = _number(device, launch, sample_seconds)
    run = device.sequence([launch] * number)
    run()  # on CUDA the graph is made by the second call
    return _quickest(device, run) / number


def call_seconds(device: Device, call: Callable[[], Any], sample_seconds: float) -> float:
    """Seconds of one call that Python makes, among many."""
    number = _number(device, call, sample_seconds)

    def run() -> None:
        for _ in range(number):
            call()

    return _quickest(device, run) / number


def _number(device: Device, call: Callable[[], Any], sample_seconds: float) -> int:
    """How many calls take `sample_seconds`, up to 100; the first call, which may compile, is not timed."""
    call()
    once = _timed(device, call)
    return max(1, min(100, int(sample_seconds / max(once, 1e-9))))


def _quickest(device: Device, run: Callable[[], Any]) -> float:
    return min(_timed(device, run) for _ in range(SAMPLES))


def _timed(device: Device, run: Callable[[], Any]) -> float:
    device.synchronize()
    start = device.timestamp()
    run()
    return device.seconds(start, device.timestamp())
