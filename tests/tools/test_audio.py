"""Audio clips become feature sequences: the paper's sets, lengths, restarting, bad clips."""

import wave

import numpy as np
import pytest
from audio_cases import clips_of, tree, wav
from refusals import assert_refused

from bppsa_cupy.data import load
from bppsa_cupy.errors import DataError
from bppsa_cupy.tools.audio import SETS, Mfcc, decode, extract, find_clips, make_audio, normalize

pytest.importorskip("soundfile", reason="features take soundfile, of the extra audio")
pytestmark = pytest.mark.usefixtures("librosa")

SMALL = Mfcc(5, 64, 32, n_mels=10)


# ---- features ----


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("S", (259, 38)),
        pytest.param("M", (517, 24), marks=pytest.mark.long),
        pytest.param("L", (1034, 12), marks=pytest.mark.long),
    ],
)
def test_the_sets_of_the_paper(librosa, tmp_path, name, shape):
    (tmp_path / "x.wav").write_bytes(wav(132300, rate=44100, channels=2))
    samples, rate = decode(tmp_path / "x.wav")
    mfcc = SETS[name]
    features = normalize(extract(samples, rate, mfcc, "x.wav"))
    assert features.shape == shape and features.dtype == np.float32
    np.testing.assert_allclose(features.mean(axis=0, dtype=np.float64), 0, atol=1e-5)
    np.testing.assert_allclose(features.std(axis=0, dtype=np.float64), 1, rtol=1e-5)
    half = shape[1] // 2
    for channel in (0, 1):
        theirs = librosa.feature.mfcc(
            y=samples[:, channel].copy(), sr=rate, n_mfcc=mfcc.n_mfcc, n_fft=mfcc.n_fft,
            hop_length=mfcc.hop_length,
        )[1:].T.astype(np.float64)  # fmt: skip
        theirs = (theirs - theirs.mean(0)) / theirs.std(0)
        np.testing.assert_allclose(features[:, channel * half : (channel + 1) * half], theirs, atol=1e-4)


# ---- from files to a data set ----


def test_clips_of_one_length_have_no_lengths(tmp_path):
    tree(tmp_path / "clips", clips_of([400] * 8, channels=2))
    make_audio(tmp_path / "clips", tmp_path / "f.h5", SMALL, test_fraction=0.25)
    dataset = load(tmp_path / "f.h5")
    assert (dataset.name, dataset.input_shape, dataset.classes) == ("clips", (13, 8), 2)
    assert (len(dataset.train), len(dataset.test)) == (6, 2)
    assert dataset.train.lengths is None and dataset.normalization is None
    assert sorted(dataset.test.labels) == [0, 1]


def test_clips_of_several_lengths_are_padded(tmp_path):
    frames = [400, 100, 64, 333]
    tree(tmp_path / "clips", clips_of(frames))
    made = make_audio(tmp_path / "clips", tmp_path / "f.h5", SMALL, test_fraction=0.5)
    dataset = load(tmp_path / "f.h5")
    assert dataset.input_shape == (13, 4) and made.train.labels.tolist() == [0, 1]
    lengths = []
    for split in (dataset.train, dataset.test):
        lengths += split.lengths.tolist()
        for inputs, length in zip(split.inputs, split.lengths, strict=True):
            np.testing.assert_allclose(inputs[:length].mean(axis=0), 0, atol=1e-5)
            assert not inputs[length:].any()
    assert sorted(lengths) == sorted(1 + n // 32 for n in frames)


@pytest.mark.parametrize("other, named", [(wav(rate=16000), "16000 Hz"), (wav(channels=2), "2 channels")])
def test_clips_of_another_format_are_refused(tmp_path, other, named):
    tree(tmp_path / "clips", {**clips_of([400, 400]), "b/other.wav": other})
    assert_refused(lambda: make_audio(tmp_path / "clips", tmp_path / "f.h5", SMALL), DataError, named, "8000")


@pytest.mark.parametrize(
    "content, named", [(b"", "decoded"), (wav(0), "no samples"), (b"ID3", "decoded"), (wav(63), "63 samples")]
)
def test_a_bad_clip_is_named(tmp_path, content, named):
    tree(tmp_path / "clips", {**clips_of([400] * 4), "z/bad.wav": content})
    arguments = tmp_path / "clips", tmp_path / "f.h5", SMALL
    call = lambda: make_audio(*arguments, test_fraction=0)  # noqa: E731
    assert_refused(call, DataError, "bad.wav", named)
    assert not (tmp_path / "f.h5").exists()


# ---- names and classes ----


def test_samples_are_as_they_were_written(tmp_path):
    (tmp_path / "x.wav").write_bytes(wav(50, channels=2, rate=44100))
    samples, rate = decode(tmp_path / "x.wav")
    assert samples.shape == (50, 2) and samples.dtype == np.float32 and rate == 44100
    with wave.open(str(tmp_path / "x.wav")) as file:
        expected = np.frombuffer(file.readframes(50), "<i2").reshape(50, 2) / 32768
    np.testing.assert_array_equal(samples, expected)


def labels_of(folder):
    return [(path.relative_to(folder).as_posix(), label) for path, label in find_clips(folder).items()]


def test_classes_are_those_of_folders(tmp_path):
    folder = tree(tmp_path, dict.fromkeys(("b/1.wav", "a/2.WAV", "a/1.wav", "a/.hidden.wav", "README.txt")))
    assert labels_of(folder) == [("a/1.wav", "a"), ("a/2.WAV", "a"), ("b/1.wav", "b")]


@pytest.mark.parametrize("names, named", [
    ((), "0 WAV files"), (("a/1.wav",), "'a'"), (("a/1.wav", "2.wav"), "2.wav"),
])  # fmt: skip
def test_names_that_do_not_fit_are_refused(tmp_path, names, named):
    folder = tree(tmp_path, dict.fromkeys(names))
    assert_refused(lambda: find_clips(folder), DataError, named)
