"""Small WAV files for the tests of audio data."""

import io
import wave

import numpy as np


def wav(frames=400, *, rate=8000, channels=1, seed=0, silent=False):
    """The bytes of a 16-bit WAV file: a tone and noise of its own in each channel."""
    rng = np.random.default_rng(seed)
    time = np.arange(frames)[:, None] / rate
    tone = np.sin(2 * np.pi * time * (300 + 100 * seed + 50 * np.arange(channels)))
    samples = 8000 * tone + 500 * rng.standard_normal((frames, channels))
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((0 if silent else 1) * samples.astype("<i2").tobytes() or bytes(2 * samples.size))
    return stream.getvalue()


def tree(folder, files):
    """Files by name, {name: bytes}; a WAV of its own where the bytes are None."""
    for seed, (name, content) in enumerate(files.items()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wav(seed=seed) if content is None else content)
    return folder


def clips_of(lengths, **options):
    return {f"{'ab'[k % 2]}/{k}.wav": wav(frames, seed=k, **options) for k, frames in enumerate(lengths)}
