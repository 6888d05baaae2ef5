"""Commands as a test runs them, and files that they take."""

import configparser
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

CONFIGURATION = configparser.ConfigParser()
CONFIGURATION.read(Path(__file__).parents[2] / "setup.cfg")
SCRIPTS = dict(
    line.replace(" ", "").split("=")
    for line in CONFIGURATION["options.entry_points"]["console_scripts"].split("\n")
    if line
)
#: A network small enough to be trained in a moment, for vectors of 4 numbers in 3 classes.
MODEL = """
import os
import time
import bppsa_cupy as bp

def small(input_shape=(4,), hidden=5, **options):
    return bp.Sequential(
        [bp.Linear(4, hidden), bp.ReLU(), bp.Linear(hidden, 3)], input_shape=input_shape, **options
    )

def wide(**options):
    return small(hidden=6, **options)

def patient(**options):
    \"\"\"Waits in the second epoch's first step for a file.\"\"\"
    net, calls, started = small(**options), [], time.monotonic()
    original = net.forward
    def forward(*given, **more):
        calls.append(net.training)
        while sum(calls) == 6 and not os.path.exists("go"):
            time.sleep(0.01)
            assert time.monotonic() - started < 60
        return original(*given, **more)
    net.forward = forward
    return net
"""


def command(script):
    """The function that an installed command calls."""
    module, _, name = SCRIPTS[script].partition(":")
    return getattr(import_module(module), name)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A current folder with a model file, and data of 40 training and 10 test samples."""
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL, encoding="utf-8")
    rng = np.random.default_rng(5)
    inputs, labels = rng.standard_normal((50, 4)).astype(np.float32), rng.integers(0, 3, 50)
    labels[:3] = labels[40:43] = range(3)
    np.savez("data.npz", x_train=inputs[:40], y_train=labels[:40], x_test=inputs[40:], y_test=labels[40:])
    return tmp_path


def train(*arguments):
    """The exit code of bppsa-train on the small model and its data."""
    options = ["--data", "data.npz", "--device", "host", "--batch-size", "8"]
    return command("bppsa-train")(["model.py:small", *options, *map(str, arguments)])


def error_line(capsys):
    """The one line on stderr, without its head."""
    printed = capsys.readouterr().err
    assert printed.startswith("error: ") and printed.endswith("\n") and printed.count("\n") == 1, printed
    return printed.removeprefix("error: ").strip()
