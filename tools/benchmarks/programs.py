"""Training steps of whole PyTorch programs, unconverted and converted.

Each program is a small version of a public kind of program, with the sizes of those: a module whose call
returns the loss of a batch. Some programs are converted by one line; in others a loop over steps is replaced.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import bppsa_cupy.torch as bt
from bppsa_cupy.devices import get_device
from bppsa_cupy.tools.benchmarks.harness import OVERALL, Case, Step, count_threads, torch_rival

KINDS: dict[str, Any] = {"RNN": nn.RNN, "GRU": nn.GRU, "LSTM": nn.LSTM}


class LanguageModel(nn.Module):
    """Predicts the next word or character; states go on from batch to batch."""

    def __init__(self, kind: str, vocabulary: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.encoder, self.drop = nn.Embedding(vocabulary, width), nn.Dropout(dropout)
        self.rnn = KINDS[kind](width, width, layers, dropout=dropout)
        self.decoder = nn.Linear(width, vocabulary)
        self.state: Any = None

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        y, state = self.rnn(self.drop(self.encoder(tokens[:-1])), self.state)
        self.state = tuple(h.detach() for h in state) if isinstance(state, tuple) else state.detach()
        return functional.cross_entropy(self.decoder(self.drop(y)).flatten(0, 1), tokens[1:].flatten())


class LSTNet(nn.Module):
    """Forecasts many series: a convolution, a GRU over it, and one over every 24th step."""

    def __init__(self, series: int = 8, skip: int = 24) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(series, 100, 6)
        self.gru, self.skipping = nn.GRU(100, 100), nn.GRU(100, 5)
        self.linear, self.skip = nn.Linear(100 + skip * 5, series), skip

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        c = torch.relu(self.convolution(x.transpose(1, 2)))
        _, last = self.gru(c.permute(2, 0, 1))
        periods, batch = 6, len(x)
        recent = c[:, :, -periods * self.skip :].reshape(batch, 100, periods, self.skip)
        _, skipped = self.skipping(recent.permute(2, 0, 3, 1).reshape(periods, batch * self.skip, 100))
        both = torch.cat([last[0], skipped[0].reshape(batch, -1)], 1)
        return functional.l1_loss(self.linear(both), target)


class DeepAR(nn.Module):
    """Forecasts by a layer that is called for one step at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.mean = nn.LSTM(5, 40, 3, dropout=0.1), nn.Linear(40, 1)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        state, means = None, []
        for step in x:
            y, state = self.lstm(step[None], state)
            means.append(self.mean(y[0]))
        return functional.mse_loss(torch.stack(means), target)


class Sequences(nn.Module):
    """A recurrent layer over whole sequences and a linear layer: knowledge tracing where each step has a
    target, keyword spotting and tasks of neuroscience."""

    def __init__(self, kind: str, features: int, width: int, layers: int, classes: int, every: bool) -> None:
        super().__init__()
        self.rnn = KINDS[kind](features, width, layers, batch_first=True)
        self.linear, self.every = nn.Linear(width, classes), every

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        y = self.rnn(x)[0]
        scores = self.linear(y if self.every else y[:, -1])
        return functional.cross_entropy(scores.flatten(0, -2), target.flatten())


class Policy(nn.Module):
    """Recurrent PPO's update: an LSTM whose state is zero where an episode starts."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm, self.value = nn.LSTM(16, width), nn.Linear(width, 1)
        self.resets = False

    def forward(self, x: torch.Tensor, starts: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if self.resets:
            y = self.lstm(x, resets=starts)[0]
        else:
            outputs, state = [], (x.new_zeros(1, x.shape[1], self.lstm.hidden_size),) * 2
            for step, begins in zip(x, starts, strict=True):
                keeps = (~begins).to(x.dtype).view(1, -1, 1)
                out, state = self.lstm(step[None], (keeps * state[0], keeps * state[1]))
                outputs.append(out)
            y = torch.cat(outputs)
        return functional.mse_loss(self.value(y)[..., 0], target)


class Loop(nn.Module):
    """A step over a sequence, as a loop."""

    def __init__(self, step: nn.Module) -> None:
        super().__init__()
        self.step = step

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        states: list[torch.Tensor] = []
        for step in x:
            h = self.step(step, h)
            states.append(h)
        return torch.stack(states), h


class Leaky(nn.Module):
    """A step of a continuous-time network: h + (f(W x + U h + noise) - h) / 5."""

    def __init__(self, features: int, width: int, noise: float) -> None:
        super().__init__()
        self.inputs, self.recurrent, self.noise = nn.Linear(features, width), nn.Linear(width, width), noise

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        total = self.inputs(x) + self.recurrent(h)
        if self.noise > 0.0:
            total = total + self.noise * torch.randn_like(total)
        return 0.8 * h + 0.2 * torch.relu(total)


class Rates(nn.Module):
    """A network of firing rates whose loop is written by hand."""

    def __init__(self, noise: float, scripted: bool) -> None:
        super().__init__()
        loop = Loop(Leaky(10, 256, noise))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of TorchScript itself
            self.rnn: Any = torch.jit.script(loop) if scripted else loop
        self.step, self.linear = [loop.step], nn.Linear(256, 3)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        y, _ = self.rnn(x, x.new_zeros(x.shape[1], 256))
        return functional.cross_entropy(self.linear(y).flatten(0, 1), target.flatten())


class LogScan(nn.Module):
    """MinGRU as its authors' code runs it: a scan of logarithms."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight_ih_l0 = nn.Parameter(torch.randn(2 * width, width) / width**0.5)
        self.bias_ih_l0 = nn.Parameter(torch.zeros(2 * width))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        h, gate = functional.linear(x, self.weight_ih_l0, self.bias_ih_l0).chunk(2, -1)
        decay, positive = -functional.softplus(gate), -functional.softplus(-gate)
        logarithm = torch.where(h >= 0, (torch.relu(h) + 0.5).log(), -functional.softplus(-h))
        sums = decay.cumsum(1)
        return (sums + (positive + logarithm - sums).logcumsumexp(1)).exp(), None


class MinGRUs(nn.Module):
    """A language model of minimal GRUs: 4 blocks of 128 units."""

    def __init__(self, width: int = 128, depth: int = 4) -> None:
        super().__init__()
        self.encoder = nn.Embedding(256, width)
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(depth))
        self.mixers = nn.ModuleList(LogScan(width) for _ in range(depth))
        self.decoder = nn.Linear(width, 256)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.encoder(tokens[:, :-1])
        for norm, mixer in zip(self.norms, self.mixers, strict=True):
            x = x + mixer(norm(x))[0]
        return functional.cross_entropy(self.decoder(x).flatten(0, 1), tokens[:, 1:].flatten())


class Sines(nn.Module):
    """Continues sines: two LSTM cells of 51 units in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.ModuleList([nn.LSTMCell(1, 51), nn.LSTMCell(51, 51)])
        self.linear = nn.Linear(51, 1)
        self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x[:-1]
        if isinstance(self.cells[0], bt.Recurrence):
            for cell in self.cells:
                y, _ = cell(y)
        else:
            states, outputs = [[x.new_zeros(x.shape[1], 51)] * 2 for _ in self.cells], []
            for step in y:
                for number, cell in enumerate(self.cells):
                    states[number] = cell(step, states[number])
                    step = states[number][0]
                outputs.append(step)
            y = torch.stack(outputs)
        return functional.mse_loss(self.linear(y), x[1:])


# ---- what replaces a loop ----


def use_resets(model: Any) -> Any:
    """One pass of the layer with resets."""
    model.resets = True
    return bt.convert(model, wait=True)


def use_recurrence(model: Any) -> Any:
    """The step as a kernel over the sequence."""
    model.rnn = bt.recurrence(model.step[0])
    return model


def use_min_gru(model: Any) -> Any:
    """Our layers in place of the scans of logarithms."""
    for number, mixer in enumerate(model.mixers):
        layer = bt.MinGRU(128, 128, candidate="positive")
        layer.load_state_dict(mixer.state_dict())
        model.mixers[number] = layer
    return model


def use_cells(model: Any) -> Any:
    """Each cell over the whole sequence."""
    model.cells = nn.ModuleList(bt.recurrence(cell) for cell in model.cells)
    return model


# ---- programs ----


@dataclass(frozen=True)
class Program:
    """A program.

    Attributes
    ----------
    make : callable
        Returns the unconverted model, a module whose call returns the loss of a batch.
    batch : callable
        Returns a batch, the arguments of that call.
    replace : callable, optional
        Replaces the loop; by default the model is converted.
    """

    name: str
    make: Callable[[], Any]
    batch: Callable[[], tuple[torch.Tensor, ...]]
    replace: Callable[[Any], Any] | None = None

    def convert(self, model: Any) -> Any:
        """The converted model, whose kernels are compiled at the first call."""
        return bt.convert(model, wait=True) if self.replace is None else self.replace(model)


def tokens(*shape: int, below: int) -> tuple[torch.Tensor, ...]:
    return (torch.randint(below, shape),)


def labelled(shape: tuple[int, ...], targets: tuple[int, ...], classes: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(shape), torch.randint(classes, targets)


def episodes(batch: int) -> tuple[torch.Tensor, ...]:
    """128 steps, of which each starts an episode with probability 1/50."""
    return torch.randn(128, batch, 16), torch.rand(128, batch) < 0.02, torch.randn(128, batch)


def sines() -> tuple[torch.Tensor, ...]:
    times = torch.arange(1000, dtype=torch.float64)[:, None] + torch.randint(-80, 80, (97,))
    return (torch.sin(times / 20)[..., None],)


def make_programs() -> Iterator[Program]:
    """All programs: those that one line converts, then those whose loop is replaced."""
    for kind in ("LSTM", "GRU"):
        yield Program(
            f"word language model, {kind} 200×2, T=35 B=20", partial(LanguageModel, kind, 1000, 200, 2, 0.2),
            partial(tokens, 36, 20, below=1000),
        )  # fmt: skip
        yield Program(
            f"character language model, {kind} 128×2, T=100 B=32",
            partial(LanguageModel, kind, 100, 128, 2, 0.0), partial(tokens, 101, 32, below=100),
        )  # fmt: skip
        yield Program(
            f"keyword spotting, {kind} 128×2, T=40 B=128", partial(Sequences, kind, 40, 128, 2, 12, False),
            partial(labelled, (128, 40, 40), (128,), 12),
        )  # fmt: skip
    yield Program(
        "LSTNet, GRU 100 and GRU 5", LSTNet, lambda: (torch.randn(128, 168, 8), torch.randn(128, 8))
    )
    yield Program(
        "DeepAR, LSTM 40×3, one step per call", DeepAR,
        lambda: (torch.randn(192, 64, 5), torch.randn(192, 64, 1)),
    )  # fmt: skip
    yield Program(
        "knowledge tracing, LSTM 200, T=199 B=64", partial(Sequences, "LSTM", 100, 200, 1, 2, True),
        partial(labelled, (64, 199, 100), (64, 199), 2),
    )  # fmt: skip
    yield Program(
        "neurogym, LSTM 64, T=100 B=16", partial(Sequences, "LSTM", 3, 64, 1, 3, True),
        partial(labelled, (16, 100, 3), (16, 100), 3),
    )  # fmt: skip
    yield Program("PPO, LSTM 256, B=1, one step per call", partial(Policy, 256), partial(episodes, 1))
    for width, batch in ((256, 1), (128, 8)):
        yield Program(
            f"PPO with resets, LSTM {width}, T=128 B={batch}", partial(Policy, width),
            partial(episodes, batch), use_resets,
        )  # fmt: skip
    for name, noise, scripted, batch in (
        ("CTRNN with noise", 0.1, False, 4),
        ("CTRNN", 0.0, False, 4),
        ("TorchScript leaky RNN", 0.0, True, 64),
    ):
        yield Program(
            f"{name}, 256 units, T=100 B={batch}", partial(Rates, noise, scripted),
            partial(labelled, (100, batch, 10), (100, batch), 3), use_recurrence,
        )  # fmt: skip
    yield Program(
        "minGRU language model, 128×4, T=512 B=8", MinGRUs, partial(tokens, 8, 513, below=256), use_min_gru
    )
    yield Program("sines, LSTMCell 51×2, T=999 B=97, float64", Sines, sines, use_cells)


class Training:
    """A program in training, from fixed weights and batches."""

    def __init__(self, program: Program, converted: bool) -> None:
        torch.manual_seed(0)
        model = program.make()
        self.batch = program.batch()
        self.model = program.convert(model) if converted else model
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.05, momentum=0.9)

    def step(self) -> float:
        """Train one step; the loss."""
        self.optimizer.zero_grad()
        loss = self.model(*self.batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return float(loss.detach())


def build(name: str, converted: bool) -> Step:
    """A step of a program; its note tells how long the first one took."""
    torch.set_num_threads(get_device("host").workers)
    training = Training(next(program for program in make_programs() if program.name == name), converted)
    started = time.perf_counter()
    first = training.step()
    seconds = time.perf_counter() - started
    return Step(
        {OVERALL: training.step}, lambda: {"first loss": first}, get_device("host"),
        note=lambda: f"first step {seconds:.2f} s",
    )  # fmt: skip


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """A case per program and number of threads, one and all."""
    for program in make_programs():
        for threads in sorted({1, arguments.threads}):
            rival = torch_rival(partial(build, program.name, False), both=False)
            rivals = {"PyTorch": rival} if "torch" in arguments.against else {}
            yield Case(
                f"{program.name}, {count_threads(threads)}", partial(build, program.name, True), rivals,
                threads=threads, memory=True, quantities={OVERALL: "step"},
                note="the loop is replaced" if program.replace else "",
            )  # fmt: skip
