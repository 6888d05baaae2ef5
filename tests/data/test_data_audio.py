"""Audio clips become feature sequences: the paper's sets, lengths, restarting, bad clips."""

import numpy as np
import pytest
from audio_cases import clips_of, tree, wav
from refusals import assert_refused

from bppsa_cupy.data import load
from bppsa_cupy.data import mfcc as features
from bppsa_cupy.data.audio import decode, make_audio
from bppsa_cupy.data.mfcc import SETS, Mfcc
from bppsa_cupy.errors import DataError

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
def test_the_sets_of_the_paper(librosa, name, shape):
    samples, rate = decode(wav(132300, rate=44100, channels=2), "x.wav")
    mfcc = SETS[name]
    found = features.normalize(features.extract(samples, rate, mfcc, "x.wav"))
    assert found.shape == shape and found.dtype == np.float32
    np.testing.assert_allclose(found.mean(axis=0, dtype=np.float64), 0, atol=1e-5)
    np.testing.assert_allclose(found.std(axis=0, dtype=np.float64), 1, rtol=1e-5)
    half = shape[1] // 2
    for channel in (0, 1):
        theirs = librosa.feature.mfcc(
            y=samples[:, channel].copy(), sr=rate, n_mfcc=mfcc.n_mfcc, n_fft=mfcc.n_fft,
            hop_length=mfcc.hop_length,
        )[1:].T.astype(np.float64)  # fmt: skip
        theirs = (theirs - theirs.mean(0)) / theirs.std(0)
        np.testing.assert_allclose(found[:, channel * half : (channel + 1) * half], theirs, atol=1e-4)


def test_mono_gives_half_the_coefficients_and_the_mean_of_channels():
    samples, rate = decode(wav(channels=2), "x.wav")
    one = features.extract(samples, rate, Mfcc(5, 64, 32, n_mels=10, mono=True), "x.wav")
    mean = samples.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(one, features.extract(mean, rate, SMALL, "x.wav"), rtol=1e-5, atol=1e-3)
    assert one.shape == (1 + 400 // 32, 4)


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
    make_audio(tmp_path / "clips", tmp_path / "f.h5", SMALL, test="3")
    dataset = load(tmp_path / "f.h5")
    lengths = [1 + n // 32 for n in frames]
    # By name: a/0, a/2, b/1 for training, b/3 for the test.
    assert dataset.train.lengths.tolist() == [lengths[k] for k in (0, 2, 1)]
    assert dataset.test.lengths.tolist() == [lengths[3]]
    assert dataset.input_shape == (13, 4) and dataset.train.labels.tolist() == [0, 0, 1]
    for inputs, length in zip(dataset.train.inputs, dataset.train.lengths, strict=True):
        np.testing.assert_allclose(inputs[:length].mean(axis=0), 0, atol=1e-5)
        assert not inputs[length:].any()


def test_constants_are_those_of_the_training_frames(tmp_path):
    tree(tmp_path / "clips", clips_of([400, 100, 64, 333]))
    made = make_audio(tmp_path / "clips", tmp_path / "f.h5", SMALL, test="3", normalization="train")
    dataset = load(tmp_path / "f.h5")
    split = dataset.train
    frames = np.concatenate([x[:n] for x, n in zip(split.inputs, split.lengths, strict=True)])
    np.testing.assert_allclose(dataset.normalization.mean, frames.mean(axis=0, dtype=np.float64), rtol=1e-9)
    np.testing.assert_allclose(dataset.normalization.std, frames.std(axis=0, dtype=np.float64), rtol=1e-9)
    assert made.constants == dataset.normalization and frames.std() > 1


@pytest.mark.parametrize("other, named, options", [
    (wav(800, rate=16000), ("16000 Hz", "--rate"), {"rate": 8000}),
    (wav(channels=2), ("2 channels", "--mono"), {"mono": True}),
])  # fmt: skip
def test_clips_are_resampled_and_mixed_on_request_alone(tmp_path, other, named, options):
    tree(tmp_path / "clips", {**clips_of([400, 400]), "b/other.wav": other})
    assert_refused(lambda: make_audio(tmp_path / "clips", tmp_path / "f.h5", SMALL), DataError, *named)
    made = make_audio(tmp_path / "clips", tmp_path / "f.h5", Mfcc(5, 64, 32, 10, **options), test_fraction=0)
    assert made.train.inputs.shape == (3, 13, 4) and made.train.lengths is None


@pytest.mark.parametrize(
    "content, named", [(b"", "empty"), (wav(100)[:-2], "truncated"), (wav(63), "63 frames")]
)
def test_a_bad_clip_is_named(tmp_path, content, named):
    tree(tmp_path / "clips", {**clips_of([400] * 4), "z/bad.wav": content})
    arguments = tmp_path / "clips", tmp_path / "f.h5", SMALL
    call = lambda: make_audio(*arguments, workers=1, test_fraction=0)  # noqa: E731
    assert_refused(call, DataError, "bad.wav", named)
    assert not (tmp_path / "f.h5").exists()
