"""bppsa-data: each command runs, and files hold what was asked for."""

import json
import wave
from pathlib import Path

import numpy as np
import pytest
from commands import command, error_line, folder  # noqa: F401  folder is a fixture

from bppsa_cupy.data import load

pytestmark = pytest.mark.usefixtures("folder")
main = command("bppsa-data")


def test_bitstreams(capsys):
    words = "bitstream --length 30 --samples 50 --test-samples 20 --seed 3 -o"
    assert main([*words.split(), "b.h5"]) == 0 and main([*words.split(), "again.h5"]) == 0
    dataset = load("b.h5")
    assert (dataset.input_shape, dataset.classes, len(dataset.test)) == ((30, 1), 10, 20)
    assert set(np.unique(dataset.train.inputs)) == {0, 1} and dataset.train.lengths is None
    assert Path("again.h5").read_bytes() == Path("b.h5").read_bytes()
    assert main(["show", "b.h5"]) == 0
    capsys.readouterr()
    for words in ("bitstream --length 3 -o none/b.h5", "audio . -o f.h5 --test-fraction 1",
                  "audio . -o f.h5 --n-mfcc 1"):  # fmt: skip
        assert main(words.split()) == 1 and error_line(capsys)


@pytest.mark.usefixtures("librosa")
def test_audio_and_show(capsys):
    for k in range(4):
        folder = Path("clips", "yes" if k % 2 else "no")
        folder.mkdir(parents=True, exist_ok=True)
        with wave.open(f"{folder}/{k}.wav", "wb") as clip:
            clip.setparams((1, 2, 8000, 0, "NONE", ""))
            tone = 9000 * np.sin(np.arange(300 + 100 * k) * 0.1 * (k + 1))
            clip.writeframes(tone.astype("<i2").tobytes())
    features = "--n-mfcc 6 --n-fft 128 --hop-length 100 --n-mels 12"
    split = ["--test-fraction", "0.5"]
    assert main(["audio", "clips", "-o", "f.h5", *features.split(), *split]) == 0
    capsys.readouterr()
    assert main(["show", "f.h5", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["class_names"] == ["no", "yes"] and shown["normalization"] == "sample"
    assert shown["test"]["inputs"][0] == 2 and shown["test"]["inputs"][2] == 5
    assert shown["test"]["dtype"] == "float32" and shown["test"]["samples_by_class"] == [1, 1]
    assert {name: shown["origin"][name] for name in ("n_mfcc", "n_fft", "hop_length", "n_mels")} == {
        "n_mfcc": 6, "n_fft": 128, "hop_length": 100, "n_mels": 12,
    }  # fmt: skip
