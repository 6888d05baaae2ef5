"""Batches shared by ranks, played in one process, against one process and against the whole batch at once."""

import re

import mpi
import numpy as np
import pytest
from ranks_in_turn import Exchange
from refusals import assert_refused

import bppsa_cupy as bp
from bppsa_cupy.data import Split, batches
from bppsa_cupy.data.dataset import Dataset
from bppsa_cupy.distributed import BatchSequential
from bppsa_cupy.distributed.batch_network import Node, TreeSum, nodes_of, shares
from bppsa_cupy.errors import DistributedError, LabelError, PassError
from bppsa_cupy.tools import train as cli_train
from bppsa_cupy.training.checkpoint import load_checkpoint
from bppsa_cupy.training.loop import evaluate, train
from bppsa_cupy.training.settings import Settings

RANKS = (1, 2, 3, 4, 5)


def played(ranks, part):
    """What `part(group)` gives on each of so many ranks."""
    return Exchange(ranks).play(part)


def images(dtype="float64", norm=True):
    """Convolution, normalisation, dropout inside and outside of a block, and a masked weight."""
    normal = [bp.BatchNorm2d(3)] if norm else []
    block = bp.Residual([bp.Conv2d(3, 3, 3, padding=1), bp.Dropout(0.3), bp.ReLU()])
    layers = [bp.Conv2d(1, 3, 3), *normal, bp.ReLU(), block, bp.Dropout(0.2), bp.MaxPool2d(2), bp.Flatten()]
    net = bp.Sequential([*layers, bp.Linear(27, 4)], (1, 8, 8), seed=3, dtype=dtype, device="host")
    bp.prune(net, 0.3)
    return net


def sequences(dtype="float64"):
    layers = [bp.GRU(2, 5), bp.Dropout(0.2), bp.Linear(5, 3)]
    return bp.Sequential(layers, (6, 2), seed=2, dtype=dtype, device="host")


def split_of(samples, shape, classes, per_step=False):
    rng = np.random.default_rng(samples)
    inputs = rng.standard_normal((samples, *shape)).astype(np.float32)
    labels = rng.integers(0, classes, (samples, *shape[:1]) if per_step else samples)
    if not per_step:
        return Split(inputs, labels, None)
    labels[1, 2:] = labels[-1] = -100
    return Split(inputs, labels, None, rng.integers(1, shape[0] + 1, samples))


def trained(net, data, batch, **options):
    """Parameters, buffers and losses behind some epochs, and the evaluation."""
    settings = Settings(
        epochs=2, batch_size=batch, clip=0.5, lr_schedule="warmup:3,cosine", label_smoothing=0.1, **options
    )
    history = train(net, data, bp.SGD(net.parameters, lr=0.1, momentum=0.9), settings)
    return {**net.state_dict(), "losses": history.losses, "test": np.array(evaluate(net, data.test, batch))}


def assert_same(actual, expected):
    assert list(actual) == list(expected)
    for name, array in actual.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


@pytest.mark.long
@pytest.mark.usefixtures("pytorch")
def test_cases_over_mpi(tmp_path, monkeypatch):
    """Both starts of a rank's own, and PyTorch's DistributedDataParallel on equal parts."""
    monkeypatch.setenv("MEETING", str(tmp_path / "meeting"))
    names = mpi.run_ranks(2, "batch_ranks.py", limit=600).stdout.split()
    text = (mpi.FOLDER / "batch_ranks.py").read_text(encoding="utf-8")
    assert names == re.findall(r"^def (case_\w+)", text, re.MULTILINE)


@pytest.mark.long
def test_the_command_over_ranks_leaves_the_checkpoint_of_one_process(tmp_path, capsys):
    model = tmp_path / "model.py"
    model.write_text(
        "import bppsa_cupy as bp\n\ndef net(**options):\n"
        "    layers = [bp.Conv2d(1, 2, 5, 5), bp.BatchNorm2d(2), bp.Dropout(0.2), bp.Flatten()]\n"
        "    layers.append(bp.Linear(72, 10))\n"
        "    return bp.Sequential(layers, **options)\n"
    )
    command = [f"{model}:net", *"--data digits --batch-size 96 --iterations 3 --micro-batch 40".split()]
    assert cli_train.main([*command, "--checkpoint", str(tmp_path / "one.h5")]) == 0
    program = ["-m", "bppsa_cupy.tools.train", *command, "--ranks", "batch"]
    ended = mpi.run_ranks(2, *program, "--checkpoint", tmp_path / "two.h5")
    assert ended.stdout.startswith("2 parts of a batch, by micro-batches of 40 samples\n")
    ours, theirs = load_checkpoint(tmp_path / "two.h5"), load_checkpoint(tmp_path / "one.h5")
    assert ours.random_state == theirs.random_state
    assert_same(ours.parameters, theirs.parameters)
    capsys.readouterr()
    for options in (["--ppv", "1"], ["--ranks", "layers"]):
        assert cli_train.main([*command, *options]) == 1
        assert "--ranks batch" in capsys.readouterr().err


CASES = {
    "images": (images, lambda: split_of(45, (1, 8, 8), 4), (1, 8, 8), False),
    "sequences": (sequences, lambda: split_of(21, (6, 2), 3, True), (6, 2), True),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", CASES)
def test_the_bits_of_training_do_not_depend_on_the_ranks(kind):
    """Uneven last batches of 9 and 5 samples, fewer micro-batches than ranks, labels that do not count."""
    make, read, shape, per_step = CASES[kind]
    split = read()
    data = Dataset(
        name=kind, train=split, test=split, input_shape=shape, classes=4 - per_step, normalization=None
    )
    for dtype, micro, batch in (("float32", 4, 18), ("float64", 3, 16)):
        expected = trained(bp.accumulate(make(dtype), micro), data, batch)

        def part(group, dtype=dtype, micro=micro, batch=batch):
            net = BatchSequential(make(dtype), group, micro)
            result = trained(net, data, batch)
            return result, net.writes

        for ranks in RANKS:
            for rank, (result, writes) in enumerate(played(ranks, part)):
                assert_same(result, expected)
                assert writes == (rank == 0)


def test_a_rank_reads_its_own_samples_alone_and_gives_whole_results():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((11, 1, 8, 8)), rng.standard_normal((11, 4))

    def passes(net, x):
        output = net.forward(x)
        by_input = net.backward(y, "bp", True)
        return {"y": output, "x": by_input, **net.gradients.to_host(), **net.state_dict()}

    def part(group):
        net = BatchSequential(images(), group, 2)
        inputs = np.full_like(x, np.nan)
        inputs[net.own_samples(11)] = x[net.own_samples(11)]
        return passes(net, inputs)

    expected = passes(bp.accumulate(images(), 2), x)
    for ranks in RANKS:
        for result in played(ranks, part):
            assert_same(result, expected)


def test_micro_batches_are_the_whole_batch_up_to_rounding():
    """Dropout draws by the number of the sample in the batch, inside of blocks too."""
    for make, shape, per_step in ((lambda: images(norm=False), (1, 8, 8), False), (sequences, (6, 2), True)):
        split = split_of(13, shape, 3, per_step)
        batch = next(batches(split, 13, dtype=np.float64))
        results = []
        for net in (make(), bp.accumulate(make(), 4), bp.accumulate(make(), 13), bp.accumulate(make(), 99)):
            for _ in range(2):
                scores = net.forward(batch.inputs, batch.lengths)
                loss, gradient = bp.cross_entropy(scores, batch.labels, lengths=batch.label_lengths)
                by_input = net.backward(gradient, "auto", True)
            results.append({"loss": loss, "y": scores, "x": by_input, **net.gradients.to_host()})
        for result in results[1:]:
            for name, array in result.items():
                np.testing.assert_allclose(array, results[0][name], rtol=1e-12, atol=1e-12, err_msg=name)
        for result in results[2:]:
            assert_same(result, results[0])


def test_running_statistics_move_by_the_mean_of_the_micro_batches_moves():
    x = np.random.default_rng(0).standard_normal((7, 1, 8, 8))
    net = bp.accumulate(images(), 3)
    net.forward(x)
    expected = np.zeros(3)
    for start in (0, 3, 6):
        alone = images()
        alone.forward(x[start : start + 3])
        expected += alone.buffers["1.running_mean"] * len(x[start : start + 3]) / 7
    np.testing.assert_allclose(net.buffers["1.running_mean"], expected, rtol=1e-12)
    assert net.buffers["1.num_batches_tracked"] == 1 and net.random_state["passes"] == 1
    net, alone = bp.accumulate(images(), 3), images()
    for part in (x[:3], x[3:5]):  # batches of one micro-batch
        net.forward(part)
        alone.forward(part)
    np.testing.assert_array_equal(net.buffers["1.running_mean"], alone.buffers["1.running_mean"])


def tree(values):
    """The sum by halves of a power of two terms, and what is behind them."""
    if len(values) == 1:
        return values[0].copy()
    half = 1 << (len(values) - 1).bit_length() - 1
    return tree(values[:half]) + tree(values[half:])


@pytest.mark.parametrize("terms", [1, 2, 3, 7, 8, 13])
def test_sums_of_any_number_of_terms_are_those_of_one_process(terms):
    rng = np.random.default_rng(terms)
    values = (rng.standard_normal((terms, 11)) * 10.0 ** rng.integers(-6, 6, (terms, 1))).astype(np.float32)

    def part(group):
        sums = TreeSum(group, group.device, np.dtype(np.float32), 11)
        for _ in range(2):
            for number in shares(terms, group.size)[group.rank]:
                sums.add(number, values[number])
            result = sums.finish(terms).copy()
        return result

    for ranks in RANKS:
        for result in played(ranks, part):
            np.testing.assert_array_equal(result, tree(values))
    assert nodes_of(range(3, 8)) == [Node(3, 1), Node(4, 4)] and nodes_of(range(4, 4)) == []


def test_refused_arguments():
    inner, x = sequences(), np.zeros((3, 6, 2))
    net = bp.accumulate(inner, 2)
    split = Split(np.zeros((4, 6, 2), np.float32), np.full((4, 6), -100), None)
    ignored = Dataset(name="none", train=split, test=None, input_shape=(6, 2), classes=3, normalization=None)
    net.forward(x)
    inner.forward(x)
    plain = inner.last_pass
    for call, error, *named in (
        (lambda: net.forward(x, states=np.zeros((1, 3, 5))), DistributedError, "initial states"),
        (lambda: bp.accumulate(sequences(), 0), DistributedError, "micro_batch=0", "1"),
        (lambda: net.backward(np.zeros((3, 6, 3)), state_gradients=x), DistributedError, "final states"),
        (lambda: net.forward(x, into=plain), PassError, "without micro-batches"),
        (lambda: train(net, ignored, bp.SGD(net.parameters), Settings(batch_size=4)), LabelError, "ignored"),
    ):  # fmt: skip
        assert_refused(call, error, *named)
