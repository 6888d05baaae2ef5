"""bppsa-data: files that bppsa-train takes, what `show` says of them, and errors on one line."""

import json
import wave

import numpy as np
import pytest

from bppsa_cupy.data import load
from bppsa_cupy.tools.data import main


def test_bitstreams(tmp_path, capsys):
    file = tmp_path / "b.h5"
    line = ["bitstream", "--length", "30", "--samples", "50", "--test-samples", "20", "--seed", "3"]
    assert main([*line, "-o", str(file)]) == 0
    printed = capsys.readouterr()
    assert "train       50 samples of 30 steps, 1 feature, uint8" in printed.out and not printed.err
    dataset = load(file)
    assert (dataset.input_shape, dataset.classes, len(dataset.test)) == ((30, 1), 10, 20)
    assert set(np.unique(dataset.train.inputs)) == {0, 1} and dataset.train.lengths is None
    assert main([*line, "-o", str(tmp_path / "again.h5")]) == 0
    assert (tmp_path / "again.h5").read_bytes() == file.read_bytes()


@pytest.mark.usefixtures("librosa")
def test_audio_and_show(tmp_path, capsys):
    for k in range(4):
        path = tmp_path / "clips" / f"{'yes' if k % 2 else 'no'}_{k}.wav"
        path.parent.mkdir(exist_ok=True)
        with wave.open(str(path), "wb") as clip:
            clip.setnchannels(1)
            clip.setsampwidth(2)
            clip.setframerate(8000)
            tone = 9000 * np.sin(np.arange(300 + 100 * k) * 0.1 * (k + 1))
            clip.writeframes(tone.astype("<i2").tobytes())
    file = tmp_path / "f.h5"
    code = main(
        ["audio", str(tmp_path / "clips"), "-o", str(file), "--n-mfcc", "6", "--n-fft", "128", "--hop-length",
         "100", "--n-mels", "12", "--pattern", r"(?P<label>\w+)_\d", "--test", ".*_3", "--normalize", "train"]
    )  # fmt: skip
    assert code == 0 and not capsys.readouterr().err
    assert main(["show", str(file)]) == 0
    assert "train       3 samples of 4 to 6 steps, median 5, 5 features, float32" in capsys.readouterr().out
    assert main(["show", str(file), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["class_names"] == ["no", "yes"] and shown["normalization"] == "train"
    assert shown["test"] == {
        "inputs": [1, 7, 5], "dtype": "float32", "lengths": [7, 7.0, 7], "samples_by_class": [0, 1],
    }  # fmt: skip
    origin = shown["origin"]
    assert (origin["n_mfcc"], origin["n_fft"], origin["hop_length"], origin["n_mels"]) == (6, 128, 100, 12)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bitstream --length 3 --samples 2 -o none/b.h5", "none/b.h5 cannot be written"),
        ("audio none -o f.h5", "none does not exist"),
        ("audio . -o f.h5", "holds no WAV file"),
        ("audio . -o f.h5 --test-fraction 1", "test fraction 1.0"),
        ("audio . -o f.h5 --n-mfcc 1", "n_mfcc must be 2 to n_mels"),
        ("show none.h5", "none.h5 does not exist"),
    ],
)
def test_errors_are_one_line(tmp_path, monkeypatch, capsys, line, message):
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1
