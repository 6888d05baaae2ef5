"""Masks that change in training: shares by hand, RigL against PyTorch, stops inside, refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from training_cases import dataset, make, run, torch_batches  # noqa: F401

import bppsa_cupy as bp
from bppsa_cupy.errors import CheckpointError
from bppsa_cupy.training.checkpoint import load_checkpoint, save_checkpoint
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import Settings

GRADUAL = bp.GradualPruning(0.9, until_step=9, from_step=1, every=3, start=0.2)


def pruned(fraction=0.6, **options):
    net = make(**options)
    bp.prune(net, fraction)
    return net


def zeros(net):
    return {name: int((mask == 0).sum()) for name, mask in net.masks.items()}


def test_the_share_is_a_cubic_of_the_step():
    assert [step for step in range(20) if GRADUAL.is_due(step)] == [1, 4, 7, 9]
    cubic = [0.9 - 0.7 * (1 - passed / 8) ** 3 for passed in (0, 3, 6, 8)]
    assert [GRADUAL.share(step) for step in (1, 4, 7, 9)] == pytest.approx(cubic)
    at_once = bp.GradualPruning(0.5, until_step=0)
    assert at_once.is_due(0) and not at_once.is_due(1) and at_once.share(0) == 0.5


def test_masks_of_gradual_pruning_are_those_of_the_share_behind_each_step(dataset):
    seen = {}

    def look(net, row):
        if "kept" in row:
            seen[row["step"]] = row["kept"]

    net, history = run(dataset, epochs=3, sparsity=GRADUAL, callbacks=[look])
    assert sorted(seen) == [1, 4, 7, 9]
    for step, kept in seen.items():
        gone = sum(round(GRADUAL.share(step) * size) for size in (27, 36))
        assert kept == pytest.approx(1 - gone / 63)
    assert zeros(net) == {"0.weight": round(0.9 * 27), "4.weight": round(0.9 * 36)}
    state = net.state_dict()
    assert all((state[name][~mask] == 0).all() for name, mask in net.masks.items())
    assert len(history.rows) == 12 and np.isfinite(history.losses).all()
    alike, _ = run(dataset, epochs=3, sparsity=bp.GradualPruning(0.0, 9))
    plain, _ = run(dataset, epochs=3)
    assert all(
        (a == b).all() for a, b in zip(alike.state_dict().values(), plain.state_dict().values(), strict=True)
    )


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

    whole, net = go(3, "whole.h5")
    rows = []
    for epochs in (1, 2, 3):
        history, last = go(epochs, "parts.h5", tmp_path / "parts.h5" if epochs > 1 else None)
        rows += history.rows
    assert rows == whole.rows
    one, other = (load_checkpoint(tmp_path / f"{name}.h5") for name in ("whole", "parts"))
    for arrays in ("parameters", "masks"):
        ours, theirs = getattr(one, arrays), getattr(other, arrays)
        assert ours.keys() == theirs.keys() and all((ours[key] == theirs[key]).all() for key in ours)
    for key, array in one.optimizer["arrays"].items():
        assert (array == other.optimizer["arrays"][key]).all()
    assert net.fingerprint == last.fingerprint


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
    kept = {name: int(mask.sum()) for name, mask in masks.items()}
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
            count = round(0.25 * (1 + math.cos(math.pi * step / 9)) * kept[name])
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
    found, history = run(dataset, net, epochs=3, sparsity=sparsity)
    assert found is net and [row["step"] for row in history.rows] == list(range(1, 13))
    assert [row["step"] for row in history.rows if "kept" in row] == [3, 6]
    for name, mask in masks.items():
        assert net.masks[name].sum() == kept[name]
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


REGROW = {
    "no gradients": ({}, 0.3, "no gradient by 0.weight"),
    "kept ones alone": ({"0.weight": np.ones(3)}, 0.3, "shape (3,)"),
    "NaN": ({"0.weight": np.full((1, 6), np.nan)}, 0.3, "NaN or infinity"),
    "share": ({"0.weight": np.ones((1, 6))}, 1.2, "fraction=1.2"),
    "no mapping": (None, 0.3, "arrays by the weight's name"),
}


@pytest.mark.parametrize("case", REGROW)
def test_growth_without_gradients_is_refused(case):
    gradients, fraction, message = REGROW[case]
    net = bp.Sequential([bp.Linear(6, 1)], (6,), dtype="float64", device="host")
    bp.prune(net, 0.5)
    before = net.masks["0.weight"].copy()
    with pytest.raises(bp.PruneError) as raised:
        bp.regrow(net, gradients, fraction)
    assert message in str(raised.value) and (net.masks["0.weight"] == before).all()


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: bp.GradualPruning(1.2, 10), "to=1.2"),
        (lambda: bp.GradualPruning(0.5, 10, start=0.7), "give a larger to"),
        (lambda: bp.GradualPruning(0.5, 10, from_step=11), "until_step=10"),
        (lambda: bp.GradualPruning(0.5, 10, every=0), "every=0"),
        (lambda: bp.GradualPruning(0.5, 10, scope="all"), "scope='all'"),
        (lambda: bp.RigL(0), "until_step=0"),
        (lambda: bp.RigL(10, fraction=-0.1), "fraction=-0.1"),
        (lambda: Settings(sparsity=0.9), "sparsity=0.9"),
    ],
)
def test_arguments_out_of_range(make_it, message):
    with pytest.raises(bp.BppsaError) as raised:
        make_it()
    assert message in str(raised.value)


def planned():
    net = pruned()
    net.use(net.plan(batch_size=16))
    return net


TRAINED = {
    "plan": (planned, GRADUAL, "auto", "train without a plan"),
    "method": (make, GRADUAL, "linear", "'bp' or 'auto', not 'linear'"),
    "pipeline": (
        lambda: bp.Pipeline(make(), [1]),
        GRADUAL,
        "bp",
        "without ranks, micro-batches and pipeline",
    ),
    "micro-batches": (lambda: bp.accumulate(make(), 4), GRADUAL, "bp", "does not: train a Sequential"),
    "no masks": (make, bp.RigL(10), "bp", "bp.prune(net, 0.95) before"),
}


@pytest.mark.parametrize("case", TRAINED)
def test_refused_before_the_first_step(dataset, case):
    make_it, sparsity, method, message = TRAINED[case]
    trained = make_it()
    net = getattr(trained, "network", trained)
    before = net.state_dict()
    settings = Settings(batch_size=16, sparsity=sparsity, method=method)
    with pytest.raises(bp.PruneError) as raised:
        train(trained, dataset, bp.SGD(net.parameters, lr=0.1), settings)
    assert message in str(raised.value)
    assert all((array == before[name]).all() for name, array in net.state_dict().items())


def test_another_schedule_does_not_resume(dataset, tmp_path):
    path = tmp_path / "c.h5"
    run(dataset, epochs=1, sparsity=GRADUAL, checkpoint=path)
    for other in (None, bp.GradualPruning(0.95, 9), bp.RigL(9)):
        net = pruned()
        masks = net.masks["0.weight"].copy()
        with pytest.raises(CheckpointError, match=r"pruning|_mask"):
            run(dataset, net, resume=path, epochs=2, sparsity=other)
        assert (net.masks["0.weight"] == masks).all()


def test_a_checkpoint_with_half_of_its_masks_is_refused(dataset, tmp_path):
    path = tmp_path / "c.h5"
    run(dataset, epochs=1, sparsity=GRADUAL, checkpoint=path)
    whole = load_checkpoint(path)
    first = whole.masks["0.weight"]
    halves = {
        "one is missing": {"0.weight": first},
        "a part": {**whole.masks, "0.weight": first[:1]},
        "others": {**whole.masks, "0.weight": ~first.astype(bool)},
    }
    for masks in halves.values():
        save_checkpoint(path, replace(whole, masks=masks))
        net = make()
        before = net.state_dict()
        with pytest.raises(CheckpointError, match="mask"):
            run(dataset, net, resume=path, epochs=2, sparsity=GRADUAL)
        assert not net.masks and all((a == before[name]).all() for name, a in net.state_dict().items())


def test_a_step_of_rigl_that_is_not_finite_leaves_masks_and_weights(dataset):
    net = pruned(dtype="float32")
    masks, state = net.masks, net.state_dict()
    broken = dict(state, **{"4.bias": np.full(3, np.nan)})
    net.load_state_dict(broken)
    with pytest.raises(bp.NonFiniteError, match="step 1"):
        run(dataset, net, epochs=1, sparsity=bp.RigL(9, every=1))
    assert all((net.masks[name] == mask).all() for name, mask in masks.items())
    assert (net.state_dict()["0.weight"] == state["0.weight"]).all()
