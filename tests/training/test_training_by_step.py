"""Training on a label at every step: PyTorch's curve, evaluation, what data of labels by step must be."""

import json

import numpy as np
import pytest
import torch

import bppsa_cupy as bp
from bppsa_cupy.data import batches, load
from bppsa_cupy.data.dataset import Raw
from bppsa_cupy.data.sequences import Sequences, read_sequences, write_sequences
from bppsa_cupy.errors import DataError
from bppsa_cupy.models import build_model
from bppsa_cupy.tools import jacobians as jacobians_tool
from bppsa_cupy.tools import train as train_tool
from bppsa_cupy.training.loop import evaluate, train
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


def test_evaluation_is_over_labels_that_count(sums):
    dataset = load(sums)
    net = build_model(
        "rnn", dataset.input_shape, classes=CLASSES, outputs="all", dtype="float64", device="host"
    )
    (batch,) = batches(dataset.test, 10, shuffle=False, dtype=np.float64)
    scores = net.forward(batch.inputs, lengths=batch.lengths)
    counted = (np.arange(STEPS) < batch.lengths[:, None]) & (np.arange(STEPS) > 1)
    expected, _ = bp.cross_entropy(scores[counted], batch.labels[counted])
    loss, accuracy = evaluate(net, dataset.test, 4)
    assert loss == pytest.approx(float(expected))
    assert accuracy == np.mean(scores.argmax(2)[counted] == batch.labels[counted])


def test_the_command_lines_take_it(sums, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = ["rnn", "--data", str(sums), "--device", "host", "--hidden-size", "8"]
    more = [
        "--optimizer",
        "adam",
        "--lr",
        "0.05",
        "--batch-size",
        "8",
        "--epochs",
        "20",
        "--log",
        "log.jsonl",
    ]
    assert train_tool.main([*line, *more]) == 0
    rows = [json.loads(row) for row in (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert rows[-1]["test_accuracy"] > 0.7
    assert jacobians_tool.main(["dump", *line, "--batch-size", "2", "-o", "j.h5"]) == 0
    assert train_tool.main([*line, "--outputs", "last"]) == 1
    assert "2 classes and a label at every step, the network's output has shape (2,): it must be (9, 2)" in (
        capsys.readouterr().err
    )


def test_a_file_gives_back_labels_by_step(sums):
    stored = read_sequences(sums).train
    np.testing.assert_array_equal(stored.labels, raw(64, 1).labels)


def test_an_archive_may_hold_them(tmp_path):
    made = raw(6, 3)
    labels = np.where(made.labels == 77, -100, made.labels)
    np.savez(tmp_path / "sums.npz", x=made.inputs, y=labels)
    assert load(tmp_path / "sums.npz").per_step


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.labels[4].fill(-100), "has no label in sample 4"),
        (lambda r: r.labels[2].put(2, 9), r"label 9 in record 2, step 2: 2 classes take 0 to 1"),
        (lambda r: r.labels[2].put(2, -1), "label -1 in record 2, step 2"),
    ],
)
def test_labels_that_are_refused(tmp_path, change, message):
    bad = raw(6, 3)
    change(bad)
    with pytest.raises(DataError, match=message):
        load(file_of(tmp_path / "bad.h5", train=bad))


def test_shapes_that_are_refused(tmp_path):
    made = raw(6, 3)
    short = Raw(made.inputs, made.labels[:, :4], "made")
    with pytest.raises(DataError, match=r"labels must be integers of shape \(6,\) or \(6, 9\)"):
        load(file_of(tmp_path / "short.h5", train=short))
    one = Raw(made.inputs, made.labels[:, 2], "made")
    with pytest.raises(DataError, match="both must have one a sample, or both one a step"):
        load(file_of(tmp_path / "mixed.h5", test=one))
