"""Chains to plan, made without a network, and plan files to read."""

import h5py
import numpy as np
from symbolic_oracle import random_pattern, random_selection

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan import Budget, Chain, Element, build_plan
from bppsa_cupy.system.hdf5 import create


def convolution(channels_in, height, channels_out, size):
    """The transposed Jacobian's pattern of a square convolution, stride 1, no padding."""
    out = height - size + 1
    dense = np.zeros((channels_in, height, height, channels_out, out, out), bool)
    for y in range(out):
        for x in range(out):
            dense[:, y : y + size, x : x + size, :, y, x] = True
    return from_dense(dense.reshape(channels_in * height**2, channels_out * out**2))


def pooling(channels, height):
    """The transposed Jacobian's pattern of 2×2 max-pooling; a selection."""
    i = np.arange(channels * height**2)
    channel, y, x = i // height**2, i // height % height, i % height
    half = height // 2
    return Pattern(
        (i.size, channels * half**2), np.arange(i.size + 1), (channel * half + y // 2) * half + x // 2
    )


def from_dense(dense):
    rows, columns = np.nonzero(dense)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=dense.shape[0]))])
    return Pattern(dense.shape, indptr, columns)


def small_network():
    """Linear 18→5, pooling 2×6², ReLU, Conv2d 3→2, ReLU, Conv2d 1→3: a chain of 6."""
    parts = [
        ("5 Linear", Pattern.dense(18, 5), True),
        ("4 MaxPool2d", pooling(2, 6), False),
        ("3 ReLU", Pattern.diagonal(72), False),
        ("2 Conv2d", convolution(3, 8, 2, 3), True),
        ("1 ReLU", Pattern.diagonal(192), False),
        ("0 Conv2d", convolution(1, 10, 3, 3), True),
    ]
    return Chain(tuple(Element(*part) for part in parts))


def general_chains():
    """Two chains of 4 whose algorithm 1 has a product of kind "terms" and one of kind "row_wise"."""
    inner, outer = convolution(3, 8, 2, 3), convolution(1, 10, 3, 3)
    terms = [Pattern.dense(18, 5), pooling(2, 6), inner, outer]
    row_wise = [Pattern.dense(72, 5), inner, outer, Pattern.dense(4, 100)]
    return [Chain(tuple(Element("J", pattern, True) for pattern in each)) for each in (terms, row_wise)]


def random_chain(n, seed=0, largest=6):
    """n random rectangular elements, some diagonal, some selections, some shared."""
    generator = np.random.default_rng(seed)
    elements, columns = [], int(generator.integers(1, largest))
    for k in range(1, n + 1):
        which, rows = generator.integers(0, 4), int(generator.integers(1, largest))
        if which == 0:
            pattern = Pattern.diagonal(columns)
        elif which == 1:
            pattern = random_selection(generator, rows, columns)
        else:
            pattern = random_pattern(generator, rows, columns, 0.5)
        elements.append(Element(f"{k}", pattern, bool(generator.integers(0, 2))))
        columns = pattern.shape[0]
    return Chain(tuple(elements))


def plan_of(*chains, batch_size=4, itemsize=4, workers=1, memory_limit=None, **options):
    """A plan of chains, with a network's description that names them."""
    network = {
        "input_shape": [1, 10, 10],
        "layers": [{"type": e.name, "shared": e.shared} for chain in chains for e in chain.elements],
    }
    budget = Budget(batch_size, itemsize, workers, memory_limit)
    return build_plan(chains, network, budget, **options)


def assert_equal_plans(first, second):
    for name in (
        "network",
        "fingerprint",
        "batch_size",
        "workers",
        "itemsize",
        "left_out",
        "schedules",
        "partition",
    ):
        assert getattr(first, name) == getattr(second, name)
    assert len(first.chains) == len(second.chains)
    for a, b in zip(first.chains, second.chains, strict=True):
        assert a.chain == b.chain
        assert a.schedules == b.schedules
        assert set(a.products) == set(b.products)
        for key, product in a.products.items():
            other = b.products[key]
            assert (product.pattern, product.kind, product.multiply_adds) == (
                other.pattern,
                other.kind,
                other.multiply_adds,
            )
            assert list(product.maps) == list(other.maps)
            for name, array in product.maps.items():
                np.testing.assert_array_equal(array, other.maps[name])
                assert array.dtype == other.maps[name].dtype


def edited(path, target, change):
    """A sealed copy of the plan file at `path` with one change: what a checksum cannot see."""
    with h5py.File(path) as source, create(target, error=PlanError) as file:
        for name, value in source.attrs.items():
            file.attrs[name] = value
        for name in source:
            source.copy(name, file)
        change(file)
    return target
