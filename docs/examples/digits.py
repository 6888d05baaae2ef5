"""Classify spoken digits with a GRU in PyTorch: a training loop with packed sequences, AdamW and clipping.

    python digits.py FOLDER [--bppsa]

FOLDER contains the recordings of the Free Spoken Digit Dataset, DIGIT_SPEAKER_INDEX.wav. Recordings with
index 0 to 4 are the test set, as in the README of the data set. With --bppsa the script also runs
`model = bppsa_cupy.torch.convert(model)`.
"""

from __future__ import annotations

import argparse
import time
import wave
from pathlib import Path

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

#: Samples of a window, and from window to window; bands of its spectrum.
WINDOW, HOP, BANDS = 256, 40, 32


class Digits(torch.nn.Module):
    """Scores of ten digits, from the last states of both directions."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.rnn = torch.nn.GRU(BANDS, hidden_size, num_layers=2, dropout=0.2, bidirectional=True)
        self.out = torch.nn.Linear(2 * hidden_size, 10)

    def forward(self, recordings: PackedSequence) -> torch.Tensor:
        _, states = self.rnn(recordings)
        return self.out(torch.cat([states[-2], states[-1]], dim=1))


def features(path: Path) -> torch.Tensor:
    """Logarithmic spectrum of a recording, (windows, BANDS), each band of mean 0 and deviation 1."""
    with wave.open(str(path)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32)
    signal = torch.from_numpy(samples / max(np.abs(samples).max(initial=0), 1))
    window = torch.hann_window(WINDOW)
    power = torch.stft(signal, WINDOW, HOP, window=window, return_complex=True).abs().square()
    bands = power[1:].reshape(BANDS, -1, power.shape[1]).mean(1).T
    logarithms = torch.log(bands + 1e-6)
    return (logarithms - logarithms.mean(0)) / (logarithms.std(0) + 1e-3)


def read(folder: Path) -> tuple[list[tuple[torch.Tensor, int]], list[tuple[torch.Tensor, int]]]:
    """Training and test recordings, each with its digit."""
    train, test = [], []
    paths = sorted(folder.glob("*.wav"))
    if not paths:
        raise SystemExit(f"{folder} holds no recordings, DIGIT_SPEAKER_INDEX.wav: give the folder that does")
    for path in paths:
        digit, _, index = path.stem.split("_")
        (test if int(index) < 5 else train).append((features(path), int(digit)))
    return train, test


def batch_of(chosen: list[tuple[torch.Tensor, int]]) -> tuple[PackedSequence, torch.Tensor]:
    """Recordings of any lengths as a pack, and their digits."""
    pack = pack_sequence([recording for recording, _ in chosen], enforce_sorted=False)
    return pack, torch.tensor([digit for _, digit in chosen])


def main(argv: list[str] | None = None) -> float:
    """Train, print loss and accuracy of every epoch, and return the last accuracy."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bppsa", action="store_true", help="convert the model")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--hidden-size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(argv)
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    train, test = read(arguments.folder)
    model = Digits(arguments.hidden_size)
    if arguments.bppsa:
        import bppsa_cupy.torch

        model = bppsa_cupy.torch.convert(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    accuracy = 0.0
    for epoch in range(1, arguments.epochs + 1):
        started = time.perf_counter()
        model.train()
        losses = []
        for chosen in torch.randperm(len(train)).split(arguments.batch_size):
            recordings, digits = batch_of([train[index] for index in chosen])
            loss = torch.nn.functional.cross_entropy(model(recordings), digits)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        seconds = time.perf_counter() - started
        model.eval()
        with torch.no_grad():
            recordings, digits = batch_of(test)
            accuracy = (model(recordings).argmax(1) == digits).double().mean().item()
        told = f"loss {np.mean(losses):.3f}, test accuracy {accuracy:.1%}, trained in {seconds:.1f} s"
        print(f"epoch {epoch}: {told}", flush=True)
    return accuracy


if __name__ == "__main__":
    main()
