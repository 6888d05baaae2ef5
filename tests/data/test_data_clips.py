"""WAV files are decoded or refused by name; folders and archives of them give classes and splits."""

import io
import struct
import wave
import zipfile

import numpy as np
import pytest
from audio_cases import tree, wav
from refusals import assert_refused

from bppsa_cupy.data.audio import Clip, Source, decode, find_clips, split_clips
from bppsa_cupy.errors import DataError

pytest.importorskip("soundfile", reason="WAV files take soundfile, of the extra audio")


def named_files(*names):
    return dict.fromkeys(names)


# ---- WAV files ----


def test_samples_are_as_they_were_written():
    samples, rate = decode(wav(50, channels=2, rate=44100), "x.wav")
    assert samples.shape == (50, 2) and samples.dtype == np.float32 and rate == 44100
    with wave.open(io.BytesIO(wav(50, channels=2, rate=44100))) as file:
        expected = np.frombuffer(file.readframes(50), "<i2").reshape(50, 2) / 32768
    np.testing.assert_array_equal(samples, expected)


def with_sizes(content, riff, data):
    """A WAV file whose header states these sizes, with a chunk of text before its samples, as ffmpeg has."""
    text = b"LIST" + struct.pack("<I", 4) + b"INFO"
    sizes = struct.pack("<I", riff), struct.pack("<I", data)
    return b"RIFF" + sizes[0] + content[8:36] + text + b"data" + sizes[1] + content[44:]


@pytest.mark.parametrize("content, named", [
    (b"", "begins with"), (wav(0), "empty"), (wav(10)[:-1], "19"), (wav(10)[:44], "20 bytes"),
    (with_sizes(wav(10), 68, 2**31 + 1), "truncated"), (wav(10)[:30], "0 bytes"), (b"RIFF", "begins with"),
    (b"ID3\x04 an mp3 file", "RIFF"), (wav(10)[:20] + b"\xff\xff" + wav(10)[22:], "decoded"),
])  # fmt: skip
def test_a_wav_that_is_empty_truncated_or_none_is_refused(content, named):
    assert_refused(lambda: decode(content, "x.wav"), DataError, "x.wav", named)


# ---- layouts ----


def labels_of(clips):
    return [(clip.name, clip.label, clip.test) for clip in clips]


def test_a_folder_a_class(tmp_path):
    tree(
        tmp_path,
        named_files("b/1.wav", "a/2.WAV", "a/1.wav", "a/.hidden.wav", "__MACOSX/a/1.wav", "README.txt"),
    )
    clips = find_clips(Source(tmp_path))
    assert labels_of(clips) == [("a/1.wav", "a", None), ("a/2.WAV", "a", None), ("b/1.wav", "b", None)]


IRMAS = (
    "cel/008__[cel][nod][cla]0058__1.wav",
    "cel/008__[cel][nod][cla]0058__2.wav",
    "cel/[cel][cla]0001__1.wav",
    "voi/[voi][pop_roc]0001__3.wav",
    "voi/[voi][dru][pop_roc]2.wav",
)


@pytest.mark.parametrize("packed", [False, True])
def test_irmas_and_its_archive(tmp_path, packed):
    if packed:
        path = tmp_path / "IRMAS-TrainingData.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name in IRMAS:
                archive.writestr(f"IRMAS-TrainingData/{name}", wav())
            archive.writestr("IRMAS-TrainingData/README.txt", b"text")
    else:
        path = tree(tmp_path, named_files(*IRMAS))
    source = Source(path)
    clips = find_clips(source)
    assert [clip.label for clip in clips] == ["cel"] * 3 + ["voi"] * 2
    first, second, other = (clip.recording for clip in clips[:3])
    assert first == second != other
    assert decode(source.read(clips[0].name), "x")[1] == 8000


def test_names_that_match_a_pattern(tmp_path):
    source = Source(tree(tmp_path, named_files("x-yes-1.wav", "sub/y-no-2.wav", "z-yes-2.wav")))
    found = find_clips(source, pattern=r".-(?P<label>\w+)-\d", test=r".*-2")
    assert labels_of(found) == [
        ("sub/y-no-2.wav", "no", True), ("x-yes-1.wav", "yes", False), ("z-yes-2.wav", "yes", True),
    ]  # fmt: skip
    assert all(clip.test is None for clip in find_clips(source, pattern=r".-(?P<label>\w+)-\d"))


BOTH = ("a/1.wav", "b/1.wav")


@pytest.mark.parametrize("names, options, named", [
    ((), {}, "no WAV file"), (("a/1.wav",), {}, "'a'"), (("a/1.wav", "2.wav"), {}, "2.wav"),
    (BOTH, {"pattern": "(?P<label>"}, "regular expression"), (BOTH, {"pattern": "x"}, "'label'"),
    (BOTH, {"pattern": "(?P<label>2)"}, "a/1.wav"), (BOTH, {"test": "["}, "regular expression"),
])  # fmt: skip
def test_names_that_do_not_fit_are_refused(tmp_path, names, options, named):
    folder = tree(tmp_path, named_files(*names))
    assert_refused(lambda: find_clips(Source(folder), **options), DataError, named)


def test_a_source_that_is_none_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("text", encoding="utf-8")
    for name in ("none", "a.txt"):
        assert_refused(lambda name=name: Source(tmp_path / name), DataError, name)


def test_a_damaged_archive_names_the_file(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/1.wav", wav())
    content = bytearray(path.read_bytes())
    content[100] ^= 255
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a/1\.wav cannot be read"):
        Source(path).read("a/1.wav")


# ---- splits ----


def test_recordings_are_not_split():
    clips = [Clip(f"{c}/{r}__{k}.wav", c, f"{c}{r}") for c in "ab" for r in range(10) for k in range(3)]
    train, test = split_clips(clips, 0.2, seed=0)
    assert sorted(
        train + [Clip(c.name, c.label, c.recording, False) for c in test], key=lambda c: c.name
    ) == [Clip(c.name, c.label, c.recording, False) for c in clips]
    assert not {c.recording for c in train} & {c.recording for c in test}
    assert [sum(c.label == label for c in test) for label in "ab"] == [6, 6]
    assert split_clips(clips, 0.2, seed=0) == (train, test) != split_clips(clips, 0.2, seed=1)
    assert split_clips(clips, 0.0, seed=0)[1] == []
