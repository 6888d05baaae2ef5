"""The paper's table 6: what torchsummary counts of its networks and their pipelines."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import bppsa_cupy as bp
from bppsa_cupy.models import build_model
from bppsa_cupy.pipeline.torchsummary import MIB, summary

#: Depth, cut, activations of a sample and weights in the paper's MB; and the increase in percent by
#: torchsummary's rule. The paper has 67, 58, 57, 57 and 57 %, "close to 60 % except for ResNet-20".
TABLE_6 = (
    (20, 7, 3.84, 1.03, 58.6),
    (56, 19, 10.87, 3.25, 57.7),
    (110, 37, 21.43, 6.59, 57.4),
    (224, 75, 43.70, 13.64, 57.3),
    (362, 121, 70.67, 22.17, 57.2),
)


class Shortcut(nn.Module):
    """Option A: every second pixel, and channels of zeros."""

    def forward(self, x):
        more = x.shape[1] // 2
        return functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, more, more))


class Block(nn.Module):
    def __init__(self, before, channels):
        super().__init__()
        stride = 1 if before == channels else 2
        self.conv1 = nn.Conv2d(before, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Sequential() if stride == 1 else Shortcut()

    def forward(self, x):
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(y + self.shortcut(x))


def resnet(depth):
    """Modules in order; the first 1 + n of them are the stage before a cut behind n blocks."""
    layers, before = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)], 16
    for channels in (16, 32, 64):
        for _ in range((depth - 2) // 6):
            layers.append(Block(before, channels))
            before = channels
    return nn.Sequential(*layers, nn.AvgPool2d(8), nn.Flatten(0), nn.Linear(64, 10))


def hooked_outputs(module, x):
    """Values that leave each module but containers and functions, as torchsummary's hooks see them."""
    found = []
    for inner in module.modules():
        if not isinstance(inner, (nn.Sequential, nn.Flatten)):
            inner.register_forward_hook(lambda _, __, y: found.append(y.numel()))
    with torch.no_grad():
        y = module(x)
    return sum(found), y


@pytest.mark.parametrize(("depth", "cut", "activations", "weights", "increase"), TABLE_6)
def test_table_6(depth, cut, activations, weights, increase):
    found = summary(bp.Placement(build_model(f"resnet{depth}", device="host"), (cut,)))
    assert round(found.weights / MIB, 2) == weights
    assert sum(found.activations) / MIB == pytest.approx(activations, rel=0.08)
    assert round(100 * found.share, 1) == increase


def test_values_are_those_that_hooks_see():
    found = summary(bp.Placement(build_model("resnet20", device="host"), (7,)))
    theirs, x = resnet(20), torch.zeros((1, 3, 32, 32))
    assert found.weights == 4 * sum(parameter.numel() for parameter in theirs.parameters())
    cut = 2 + 3  # a convolution, its normalisation, and three blocks
    before, x = hooked_outputs(theirs[:cut], x)
    behind, _ = hooked_outputs(theirs[cut:], x)
    assert found.activations == (8 * before, 8 * behind)
    assert found.increase == 2 * 4 * before


def test_stages_and_copies():
    layers = [bp.Conv2d(1, 2, 3), bp.ReLU(), bp.MaxPool2d(2), bp.Flatten()]
    layers += [bp.Linear(8, 5), bp.Tanh(), bp.Linear(5, 3)]
    net = bp.Sequential(layers, (1, 6, 6), device="host")
    found = summary(bp.Placement(net, (1, 2)))
    outputs = np.array([2 * 4 * 4 + 2 * 2 * 2, 5, 3])
    assert found.activations == tuple(8 * outputs)
    assert found.increase == 4 * (4 * outputs[0] + 2 * outputs[1])
    assert found.share == pytest.approx(found.increase / (8 * outputs.sum()))
    assert summary(bp.Placement(net, ())).increase == 0


def test_a_block_that_is_cut_has_the_values_of_the_whole():
    net = build_model("resnet20", device="host")
    whole = summary(bp.Placement(net, (7,)))
    cut = summary(bp.Placement(net, (6, 8, 14)))
    assert sum(cut.activations) == sum(whole.activations)
    # A block of 32 channels begins behind the cut at 7: its first convolution and normalisation.
    assert sum(cut.activations[:2]) == whole.activations[0] + 8 * (2 * 32 * 16 * 16)
