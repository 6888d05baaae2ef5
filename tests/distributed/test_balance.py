"""Partitions by what layers cost."""

from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bppsa_cupy as bp
from bppsa_cupy.distributed.balance import (
    EQUAL_PARTS_COST,
    LayerTimes,
    backward_partition,
    backward_seconds,
    best_partition,
    layer_times,
)
from bppsa_cupy.models import build_model

SECONDS = st.lists(st.tuples(*[st.sampled_from([0.0, 0.1, 1.0, 2.0, 7.0])] * 2), max_size=7)


def timeline(times, partition):
    """When the last rank has its gradients, event by event."""
    arrived = end = 0.0
    for rank in reversed(range(partition.ranks)):
        own = partition.part(rank)
        arrived += sum(times.vjp[layer] for layer in own)
        if own:
            end = max(end, arrived + sum(times.gradients[layer] for layer in own))
    return end


@given(SECONDS, st.integers(1, 4))
def test_the_quickest_back_propagation(layers, ranks):
    vjp, gradients = zip(*layers, strict=True) if layers else ((), ())
    times, n = LayerTimes(vjp, vjp, gradients), len(layers)
    found = backward_partition(times, ranks)
    assert (found.items, found.ranks) == (n, ranks)
    assert np.isclose(backward_seconds(times, found), timeline(times, found))
    cuts = combinations_with_replacement(range(n + 1), ranks - 1)
    least = min(timeline(times, bp.Partition((0, *cut, n))) for cut in cuts)
    assert timeline(times, found) <= least * (1 + 1e-9) + 1e-12
    assert timeline(times, best_partition(times, ranks)) <= EQUAL_PARTS_COST * least * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(("model", "layers"), [("lenet5", 12), ("vgg11", 23), ("lstm", 2)])
def test_times_of_a_network(model, layers):
    network = build_model(model, device="host")
    times = layer_times(network.architecture, "host")
    assert len(times.vjp) == len(network) == layers
    for index, layer in enumerate(network.layers):
        works = bool(layer.parameter_shapes())
        assert (times.gradients[index] > 0) == works
        assert times.vjp[index] > 0 or type(layer).__name__ == "Flatten"
