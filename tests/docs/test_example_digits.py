"""docs/examples/digits.py: its features and split, and both of its models on tones that rise or fall."""

import importlib.util
import wave
from pathlib import Path

import numpy as np
import pytest
import torch

PATH = Path(__file__).parents[2] / "docs" / "examples" / "digits.py"


@pytest.fixture(scope="module")
def digits():
    spec = importlib.util.spec_from_file_location("digits_example", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Twelve tones, rising ones and falling ones, of several lengths; two of each are for the test."""
    path = tmp_path_factory.mktemp("recordings")
    rng = np.random.default_rng(0)
    for digit in (3, 7):
        for index in (3, 4, 5, 6, 7, 8):
            time = np.linspace(0, 1, 500 + 90 * index)
            phase = np.cumsum(0.2 + 1.5 * (time if digit == 3 else 1 - time))
            tone = 9000 * np.sin(phase) + rng.normal(0, 90, time.size)
            with wave.open(str(path / f"{digit}_nobody_{index}.wav"), "wb") as file:
                file.setparams((1, 2, 8000, 0, "NONE", ""))
                file.writeframes(tone.astype("<i2").tobytes())
    return path


@pytest.mark.long
@pytest.mark.parametrize("options", [[], ["--bppsa"]])
def test_it_learns(digits, folder, options):
    threads = torch.get_num_threads()
    try:
        words = "--epochs 15 --hidden-size 16 --batch-size 4 --threads 1".split()
        assert digits.main([str(folder), *words, *options]) == 1.0
    finally:
        torch.set_num_threads(threads)
