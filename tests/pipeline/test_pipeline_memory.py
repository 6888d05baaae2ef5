"""Memory of pipelines by the paper's formula."""

import numpy as np
import pytest

import bppsa_cupy as bp
from bppsa_cupy.models import build_model
from bppsa_cupy.pipeline.schedules import SCHEDULES
from bppsa_cupy.tools.plans.pipeline import stage_memory

MIB = 2**20


@pytest.mark.parametrize(
    ("depth", "cut", "activations", "weights", "increase"),
    [
        (20, 7, 3.84, 1.03, 58.6),
        (56, 19, 10.87, 3.25, 57.7),
        (110, 37, 21.43, 6.59, 57.4),
        (224, 75, 43.70, 13.64, 57.3),
        (362, 121, 70.67, 22.17, 57.2),
    ],
)
def test_table_6_of_the_paper(depth, cut, activations, weights, increase):
    """Activations per sample and weights in the paper's MB. The increase in percent is by the formula; the
    paper has 67, 58, 57, 57 and 57."""
    memory = stage_memory(bp.Placement(build_model(f"resnet{depth}", device="host"), (cut,)), "stale", 1)
    counted = sum(stage.activations for stage in memory)
    assert round(sum(stage.weights for stage in memory) / MIB, 2) == weights
    assert counted / MIB == pytest.approx(activations, rel=0.08)
    assert round(100 * sum(stage.copies for stage in memory) / counted, 1) == increase


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("itemsize", [4, 8])
def test_stages_by_hand(name, itemsize):
    layers = [bp.Conv2d(1, 2, 3), bp.ReLU(), bp.MaxPool2d(2), bp.Flatten()]
    layers += [bp.Linear(8, 5), bp.Tanh(), bp.Linear(5, 3)]
    placement = bp.Placement(bp.Sequential(layers, (1, 6, 6), device="host"), (1, 2))
    micro = 3 if SCHEDULES[name].micro else 1
    samples = 4 if micro == 3 else 10  # of the largest micro-batch
    weights, outputs = np.array([20, 45, 18]), samples * np.array([2 * 4 * 4 + 2 * 2 * 2, 5, 3])
    further = {
        "none": [0, 0, 0], "stale": [4, 2, 0], "stale-1f1b": [2, 1, 0], "pipedream": [2, 1, 0],
        "gpipe": [2, 2, 2], "1f1b": [2, 1, 0],
    }[name]  # fmt: skip
    memory = stage_memory(placement, name, 10, micro=micro, itemsize=itemsize)
    assert [stage.weights for stage in memory] == (itemsize * weights).tolist()
    assert [stage.activations for stage in memory] == (2 * itemsize * outputs).tolist()
    assert [stage.copies for stage in memory] == (itemsize * outputs * further).tolist()
    stashed = itemsize * weights * further if name == "pipedream" else np.zeros(3)
    assert [stage.weight_copies for stage in memory] == stashed.tolist()
    assert memory[0].total == sum(vars(memory[0]).values())
