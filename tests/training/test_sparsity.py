"""Masks that change in training: shares by hand, RigL against PyTorch, stops inside, refusals."""

import math

import numpy as np
import pytest
import torch
from training_cases import dataset, make, run_training, torch_batches  # noqa: F401

import bppsa_cupy as bp
from bppsa_cupy.training.checkpoint import load_checkpoint
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import Settings

GRADUAL = bp.GradualPruning(0.9, until_step=9, from_step=1, every=3, start=0.2)


def pruned(fraction=0.6, **options):
    net = make(**options)
    bp.prune(net, fraction)
    return net


OPTIMIZERS = {
    "SGD": lambda net: bp.SGD(net.parameters, lr=0.05, momentum=0.9),
    "AdamW": lambda net: bp.AdamW(net.parameters, lr=0.01),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["gradual", "RigL"])
def test_a_stop_inside_gives_the_bits_of_one_run(dataset, tmp_path, kind, optimizer):
    """Three epochs of four steps, and the same stopped behind each."""
    sparsity = GRADUAL if kind == "gradual" else bp.RigL(until_step=11, every=2)

    def go(epochs, name, resume=None):
        net = make("float64") if kind == "gradual" else pruned(0.9, dtype="float64")
        made = OPTIMIZERS[optimizer](net)
        settings = Settings(batch_size=16, epochs=epochs, sparsity=sparsity, checkpoint=tmp_path / name)
        return train(net, dataset, made, settings, resume=resume), net

    expected, net = go(3, "whole.h5")
    rows = []
    for epochs in (1, 2, 3):
        history, last = go(epochs, "parts.h5", tmp_path / "parts.h5" if epochs > 1 else None)
        rows += history.rows
    assert rows == expected.rows
    first, second = (load_checkpoint(tmp_path / f"{name}.h5") for name in ("whole", "parts"))
    for arrays in ("parameters", "masks"):
        ours, theirs = getattr(first, arrays), getattr(second, arrays)
        assert ours.keys() == theirs.keys() and all((ours[key] == theirs[key]).all() for key in ours)
    for key, array in first.optimizer["arrays"].items():
        assert (array == second.optimizer["arrays"][key]).all()
    assert net.describe() == last.describe()


@pytest.mark.parametrize("fraction", [0.5, 0.95])
def test_rigl_drops_by_magnitude_and_grows_by_pytorchs_gradients(dataset, fraction):
    """Step for step beside PyTorch with masks, float64; by all weights, and by lists."""
    net, sparsity = pruned(fraction), bp.RigL(until_step=9, every=3, fraction=0.5)
    theirs = torch.nn.Sequential(
        torch.nn.Conv2d(1, 3, 3),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(12, 3),
    ).double()
    theirs.load_state_dict({name: torch.tensor(array) for name, array in net.state_dict().items()})
    masks = {name: torch.tensor(mask) for name, mask in net.masks.items()}
    weights = dict(theirs.named_parameters())
    rival = torch.optim.SGD(theirs.parameters(), lr=0.05, momentum=0.9)
    counts = {name: int(mask.sum()) for name, mask in masks.items()}
    for step, (x, labels) in enumerate(torch_batches(dataset, 3), 1):
        rival.zero_grad()
        torch.nn.functional.cross_entropy(theirs(x), labels).backward()
        if step not in (3, 6):
            for name, mask in masks.items():
                weights[name].grad *= mask
            rival.step()
            continue
        for name, mask in masks.items():
            flat, gradient = weights[name].detach().flatten(), weights[name].grad.abs().flatten()
            count = round(0.25 * (1 + math.cos(math.pi * step / 9)) * counts[name])
            alive = set(mask.flatten().nonzero().flatten().tolist())
            alive -= set(sorted(alive, key=lambda place: abs(float(flat[place])))[:count])
            rest = sorted(set(range(flat.numel())) - alive, key=lambda place: -float(gradient[place]))
            new = torch.zeros_like(mask).flatten()
            new[sorted(alive) + rest[:count]] = True
            masks[name] = mask = new.reshape(mask.shape)
            weights[name].data *= mask
            momentum = rival.state[weights[name]].get("momentum_buffer")
            if momentum is not None:
                momentum *= mask
    trained, history = run_training(dataset, net, epochs=3, sparsity=sparsity)
    assert trained is net and [row["step"] for row in history.rows] == list(range(1, 13))
    assert [row["step"] for row in history.rows if "kept" in row] == [3, 6]
    for name, mask in masks.items():
        assert net.masks[name].sum() == counts[name]
        np.testing.assert_array_equal(net.masks[name], mask.numpy())
    for name, array in net.state_dict().items():
        np.testing.assert_allclose(array, weights[name].detach().numpy(), rtol=1e-8, atol=1e-10)


def test_regrow_by_hand():
    net = bp.Sequential([bp.Linear(6, 1)], (6,), dtype="float64", device="host")
    net.set_masks({"0.weight": [[1, 1, 1, 0, 0, 0]]})
    net.parameters["0.weight"][...] = [[3, -1, 2, 0, 0, 0]]
    masks = bp.regrow(net, {"0.weight": np.array([[0, 9, 0, -7, 8, 0]])}, 2 / 3)
    # 2 and -1 are dropped; of what is left -1, which stays as it is, and the fifth have the largest gradients
    assert masks["0.weight"].tolist() == [[True, True, False, False, True, False]]
    assert net.parameters["0.weight"].tolist() == [[3, -1, 0, 0, 0, 0]]
    assert bp.regrow(net, {"0.weight": np.ones((1, 6))}, 0)["0.weight"].tolist() == masks["0.weight"].tolist()
