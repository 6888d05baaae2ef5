"""Training on a label at every step: PyTorch's curve, evaluation, what data of labels by step must be."""

import numpy as np
import pytest
import torch

import bppsa_cupy as bp
from bppsa_cupy.data import batches, load
from bppsa_cupy.data.dataset import Raw
from bppsa_cupy.data.sequences import Sequences, write_sequences
from bppsa_cupy.models import build_model
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import Settings

STEPS, CLASSES = 9, 2


def raw(count, seed):
    """Numbers whose label is whether the last three sum to more than 0; none at the first two steps."""
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((count, STEPS, 1)).astype(np.float32)
    totals = np.apply_along_axis(np.convolve, 1, inputs[..., 0], np.ones(3))[:, :STEPS]
    labels = (totals > 0).astype(np.int64)
    labels[:, :2] = -100
    lengths = rng.integers(3, STEPS + 1, count)
    labels[np.arange(STEPS) >= lengths[:, None]] = 77
    return Raw(inputs, labels, "made", lengths)


def file_of(path, **parts):
    parts = {"train": raw(64, 1), "test": raw(10, 2), **parts}
    write_sequences(path, Sequences("sums", parts["train"], parts["test"], ("below", "above")))
    return path


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    return file_of(tmp_path_factory.mktemp("steps") / "sums.h5")


def torch_losses(net, dataset, settings, lr):
    """The curve of PyTorch's GRU and Linear from the network's parameters, padded labels at -100."""
    gru = torch.nn.GRU(1, 6, batch_first=True).double()
    linear = torch.nn.Linear(6, CLASSES).double()
    state = {name: torch.tensor(array) for name, array in net.state_dict().items()}
    gru.load_state_dict({name[2:]: array for name, array in state.items() if name.startswith("0.")})
    linear.load_state_dict({name[2:]: array for name, array in state.items() if name.startswith("1.")})
    optimizer = torch.optim.Adam([*gru.parameters(), *linear.parameters()], lr=lr)
    losses = []
    for epoch in range(settings.epochs):
        source = batches(
            dataset.train, settings.batch_size, seed=settings.seed, epoch=epoch, dtype=np.float64
        )
        for batch in source:
            labels = batch.labels.copy()
            labels[np.arange(STEPS) >= batch.lengths[:, None]] = -100
            scores = linear(gru(torch.tensor(batch.inputs))[0])
            loss = torch.nn.functional.cross_entropy(scores.transpose(1, 2), torch.tensor(labels))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def test_the_curve_is_pytorchs(sums):
    dataset = load(sums)
    assert dataset.per_step and dataset.classes == CLASSES
    net = build_model("gru", dataset.input_shape, classes=CLASSES, hidden_size=6, outputs="all",
                      dtype="float64", device="host")  # fmt: skip
    settings = Settings(epochs=2, batch_size=8, method="blelloch")
    expected = torch_losses(net, dataset, settings, 0.02)
    history = train(net, dataset, bp.Adam(net.parameters, lr=0.02), settings)
    np.testing.assert_allclose(history.losses, expected, rtol=1e-9)
