"""Every command line: help, exit codes, errors on one line, silence in a pipe; errors of bppsa-train."""

import argparse
import json
import os
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from commands import SCRIPTS, command, error_line, folder, train  # noqa: F401  folder is a fixture

import bppsa_cupy as bp
from bppsa_cupy.devices.cuda import import_cupy
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.tools import cli
from bppsa_cupy.training.checkpoint import load_checkpoint, save_checkpoint

ROOT = Path(__file__).parents[2]


# ---- every command ----


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_ends_with_0(script, capsys):
    with pytest.raises(SystemExit) as end:
        command(script)(["--help"])
    printed = capsys.readouterr()
    assert end.value.code == 0 and not printed.err
    assert printed.out.startswith(f"usage: {script} ")


def test_help_needs_no_package_of_an_extra():
    program = """
import sys
from importlib import import_module
extras, *scripts = sys.argv[1:]
sys.modules.update(dict.fromkeys(extras.split(",")))
for script in scripts:
    module, _, name = script.partition(":")
    try:
        getattr(import_module(module), name)(["--help"])
    except SystemExit as end:
        assert end.code == 0, script
"""
    extras = "cupy,jax,librosa,matplotlib,mpi4py,sklearn,soundfile,sympy,torch"
    command = [sys.executable, "-c", program, extras, *SCRIPTS.values()]
    ended = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("usage: ") == len(SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("arguments", [[], ["--no-such-option"]])
def test_wrong_usage_ends_with_2(script, arguments, capsys):
    with pytest.raises(SystemExit) as end:
        command(script)(arguments)
    printed = capsys.readouterr()
    assert end.value.code == 2 and not printed.out
    assert printed.err.startswith(f"usage: {script} ")


STATED_ERRORS = [
    ("bppsa-plan", "build no-such-model -o p.h5", "model 'no-such-model' is none of lenet5"),
    ("bppsa-plan", "build model.py:none -o p.h5", "model 'model.py:none': model.py has no function 'none'"),
    ("bppsa-plan", "build model.py:small -o no-such-folder/p.h5", "no-such-folder/p.h5 cannot be written"),
    ("bppsa-plan", "show missing.h5", "missing.h5 does not exist"),
    ("bppsa-plan", "show data.npz", "data.npz is not a sealed HDF5 file"),
    ("bppsa-plan", "verify missing.h5", "missing.h5 does not exist"),
    ("bppsa-plan", "draw missing.h5 -o p.png", "missing.h5 does not exist"),
    ("bppsa-jacobians", "show missing.h5", "missing.h5 does not exist"),
    ("bppsa-jacobians", "plot data.npz -o p.png", "data.npz is not a sealed HDF5 file"),
    ("bppsa-jacobians", "dump lenet5 --data missing -o j.h5", "data 'missing' does not exist"),
    ("bppsa-train", "lenet5 --data missing", "data 'missing' does not exist"),
    ("bppsa-train", "missing.py:net --data data.npz", "model file 'missing.py' does not exist"),
    ("bppsa-train", "no_such_module:net --data data.npz", "module 'no_such_module' cannot be imported"),
    ("bppsa-data", "show missing.h5", "missing.h5 does not exist"),
    ("bppsa-data", "audio missing -o f.h5", "missing does not exist"),
    ("bppsa-data", "audio /dev/zero -o f.h5", "/dev/zero is no zip archive"),
    ("bppsa-reproduce", "figure6 --data missing", "missing"),
]


@pytest.mark.parametrize(("script", "line", "message"), STATED_ERRORS)
def test_a_stated_error_is_one_line_and_ends_with_1(folder, capsys, script, line, message):
    assert command(script)(line.split()) == 1
    assert message in error_line(capsys)


def test_every_command_has_a_stated_error_here():
    assert {script for script, _, _ in STATED_ERRORS} | {"bppsa-bench"} == set(SCRIPTS)


def test_in_a_pipe_no_bar_and_no_traceback(folder):
    """The commands as processes, as a shell runs them."""

    def run(tool, *arguments):
        return subprocess.run(
            [sys.executable, ROOT / "tools" / tool, *arguments],
            cwd=folder,
            capture_output=True,
            encoding="utf-8",
        )

    planned = run("plan.py", "build", "model.py:small", "--device", "host", "-o", "p.h5")
    assert (planned.returncode, planned.stderr) == (0, "")
    with subprocess.Popen(
        [sys.executable, ROOT / "tools" / "train.py", *"model.py:patient --data data.npz --plan p.h5".split(),
         "--device", "host", "--epochs", "2", "--batch-size", "8"],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
    ) as trained:  # fmt: skip
        assert [trained.stdout.readline().split(":")[0] for _ in range(2)][1] == "epoch 1"
        (folder / "go").touch()  # without which the second epoch does not begin
        out, err = trained.communicate()
    assert (trained.returncode, err) == (0, "")
    assert [line.split(",")[0][:18] for line in out.splitlines()[:2]] == [
        "epoch 2: test loss",
        "steps 1 to 10: los",
    ]
    assert out.count("epoch") == 1 and "\r" not in out
    failed = run("train.py", "model.py:wide", "--data", "data.npz", "--device", "host", "--plan", "p.h5")
    assert failed.returncode == 1 and failed.stderr.count("\n") == 1 and "Traceback" not in failed.stderr


# ---- bppsa-train ----


def test_cuda_without_a_gpu_is_refused(folder, capsys):
    try:
        import_cupy()
    except DeviceError as error:
        assert train("--device", "cuda") == 1
        assert error_line(capsys) == " ".join(str(error).split())
    else:
        pytest.skip("a GPU is there")


def test_a_plan_of_another_network_is_refused(folder, capsys):
    command("bppsa-plan")(["build", "model.py:wide", "--device", "host", "-o", "wide.h5"])
    capsys.readouterr()
    assert train("--plan", "wide.h5") == 1
    message = error_line(capsys)
    assert message.startswith("the plan was made for another network: ")
    assert "layer 0 Linear: out_features 6 in the plan, 5 in the network" in message


def test_a_scan_without_a_plan_is_refused(folder, capsys):
    assert train("--method", "blelloch") == 1
    assert "bppsa-plan build" in error_line(capsys)


def test_data_of_another_shape_is_refused(folder, capsys):
    rng = np.random.default_rng(0)
    np.savez("data.npz", x=rng.standard_normal((9, 7)), y=np.arange(9) % 3)
    assert train() == 1
    assert "got input (7,): its last size must be 4" in error_line(capsys)


def test_training_stops_at_a_loss_that_is_not_finite(folder, capsys):
    """One good epoch leaves a checkpoint; going on with an absurd learning rate keeps it as it is."""
    assert train("--epochs", 1, "--lr", 0.01, "--momentum", 0, "--checkpoint", "good.h5") == 0
    state = load_checkpoint("good.h5")
    state.optimizer["hyperparameters"]["lr"] = 1e30
    save_checkpoint("good.h5", state)
    before = Path("good.h5").read_bytes()
    capsys.readouterr()
    assert train("--epochs", 9, "--momentum", 0, "--resume", "good.h5", "--checkpoint", "good.h5") == 1
    message = error_line(capsys)
    assert "at step 7" in message and "the last good checkpoint is good.h5" in message
    assert Path("good.h5").read_bytes() == before
    assert all(np.isfinite(array).all() for array in load_checkpoint("good.h5").parameters.values())


def test_the_log_ends_before_a_loss_that_is_not_finite(folder, capsys):
    assert train("--epochs", 3, "--lr", 1e30, "--log", "log.jsonl") == 1
    rows = [json.loads(line) for line in Path("log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert f"at step {len(rows) + 1}" in error_line(capsys)
    assert all(np.isfinite(row["loss"]) for row in rows)


def test_a_checkpoint_of_another_network_is_refused(folder, capsys):
    assert train("--epochs", 1, "--checkpoint", "small.h5") == 0
    capsys.readouterr()
    assert command("bppsa-train")(["model.py:wide", "--data", "data.npz", "--resume", "small.h5"]) == 1
    assert "layer 0 Linear: out_features 5 in the checkpoint, 6 in the network" in error_line(capsys)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("bppsa-train", "model.py:small --data data.npz --seed -1"),
        ("bppsa-plan", "build model.py:small -o p.h5 --seed -1"),
        ("bppsa-plan", "build model.py:small -o p.h5 --memory-limit -5G"),
        ("bppsa-plan", "build model.py:small -o p.h5 --memory-limit inf"),
        ("bppsa-plan", "build model.py:small -o p.h5 --batch-size 99999999999999999999"),
        ("bppsa-plan", "build model.py:small -o p.h5 --input-shape 99999999999,99999999999"),
        ("bppsa-jacobians", "dump model.py:small --data data.npz -o j.h5 --seed x"),
        ("bppsa-data", "bitstream --length 3 -o s.h5 --seed -1"),
    ],
)
def test_numbers_out_of_range_are_wrong_usage(folder, capsys, script, words):
    with pytest.raises(SystemExit) as end:
        command(script)(words.split())
    assert end.value.code == 2
    assert ": error: argument " in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == ["data.npz", "model.py"]


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("def other(**options): return 5", "made a int: a factory returns a Sequential"),
        ("def other(): pass", "got an unexpected keyword argument"),
        ("another = 5", "other.py has no function 'other'"),
        ("other = 5", "other of other.py is of int, it takes a function that returns the model"),
        ("raise KeyError('x')", "model file 'other.py' fails: KeyError"),
        ("def other(**options): raise RuntimeError('no such day')", "fails: RuntimeError: no such day"),
    ],
)
def test_a_model_that_is_no_factory_is_refused(folder, capsys, factory, message):
    Path("other.py").write_text(factory + "\n", encoding="utf-8")
    assert command("bppsa-train")(["other.py:other", "--data", "data.npz"]) == 1
    assert message in error_line(capsys)


def test_a_warning_is_one_line(capsys):
    def main(_):
        warnings.warn("a file\nis damaged", RuntimeWarning, stacklevel=2)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert cli.run(main, argparse.Namespace()) == 0
    assert capsys.readouterr().err == "warning: a file is damaged\n"


def test_a_reader_that_has_seen_enough_is_no_error():
    script = (
        "from bppsa_cupy.tools import cli; import sys; sys.exit(cli.run(lambda a: print('x' * 200000), None))"
    )
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", script], stdout=writing, stderr=subprocess.PIPE, encoding="utf-8", check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("name", ["bench", "data", "jacobians", "plan", "reproduce", "train"])
def test_every_command_tells_its_version(name, capsys):
    main = import_module(f"bppsa_cupy.tools.{name}").main
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"bppsa-{name} {bp.__version__}\n"
