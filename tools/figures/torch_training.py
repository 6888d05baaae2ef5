"""Training of a recurrent and a linear layer by PyTorch, from a network's parameters, on its batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tqdm import tqdm

from bppsa_cupy.data import Batch, Dataset, Split, batches, number_of_batches
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.training.settings import Settings


@dataclass
class Curve:
    """What training gave.

    losses    mean over the batch, a step
    seconds   since the start, after each step's backward pass
    accuracy  on the test samples at the end; None without them
    backward  what ran over time, as net.last_backward says it; empty for PyTorch
    """

    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    accuracy: float | None = None
    backward: tuple[str, ...] = ()


def import_torch() -> Any:
    """PyTorch. Raises BppsaError where it is missing."""
    try:
        import torch
    except ImportError as cause:
        raise BppsaError(
            f"the comparison takes PyTorch, which cannot be imported ({cause}): install torch"
        ) from cause
    return torch


def train_by_torch(
    network: Sequential, dataset: Dataset, settings: Settings, lr: float, threads: int = 1
) -> Curve:
    """Train a copy of `network` (a recurrent layer whose last state a linear layer takes) by Adam.

    Batches, loss, clipping and Adam's step are those of `training.train` with the same settings; the
    network stays as it is. Runs on the network's kind of device, with `threads` threads on the host.
    """
    torch = import_torch()
    torch.set_num_threads(threads)
    device = torch.device("cuda" if network.device.name == "cuda" else "cpu")
    model = _model(torch, network).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    curve = Curve()
    last = settings.last_step(number_of_batches(dataset.train, settings.batch_size))
    bar = tqdm(total=last, desc="PyTorch", unit="step", disable=not settings.progress, dynamic_ncols=True)
    started = time.perf_counter()
    with bar:
        for epoch in range(settings.epochs):
            for batch in batches(
                dataset.train, settings.batch_size, seed=settings.seed, epoch=epoch, dtype=network.dtype
            ):
                if len(curve.losses) == last:
                    break
                scores = _scores(torch, model, batch, device)
                loss = torch.nn.functional.cross_entropy(scores, torch.tensor(batch.labels, device=device))
                optimizer.zero_grad()
                loss.backward()
                curve.seconds.append(time.perf_counter() - started)
                if settings.clip is not None:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
                optimizer.step()
                curve.losses.append(loss.item())
                bar.update()
    if dataset.test is not None:
        with torch.no_grad():
            curve.accuracy = accuracy(
                dataset.test,
                network.dtype,
                lambda batch: _scores(torch, model, batch, device).cpu().numpy(),
            )
    return curve


def accuracy(split: Split, dtype: np.dtype, scores: Callable[[Batch], np.ndarray]) -> float:
    """The part of the samples whose largest score, (B, classes), is their label's."""
    right = 0
    for batch in batches(split, 64, shuffle=False, dtype=dtype):
        right += int((scores(batch).argmax(1) == batch.labels).sum())
    return right / len(split)


def _model(torch: Any, network: Sequential) -> Any:
    """The two layers with copies of the network's parameters, named as there."""
    cell, _ = network.layers
    parameters = {name: torch.tensor(array) for name, array in network.state_dict().items()}
    classes, hidden = parameters["1.weight"].shape
    features = network.input_shape[1]
    recurrent = getattr(torch.nn, type(cell).__name__)(features, hidden, batch_first=True)
    model = torch.nn.ModuleList([recurrent, torch.nn.Linear(hidden, classes)])
    model.to(getattr(torch, network.dtype.name)).load_state_dict(parameters)
    return model


def _scores(torch: Any, model: Any, batch: Batch, device: Any) -> Any:
    inputs = torch.tensor(batch.inputs, device=device)
    if batch.lengths is not None:
        inputs = torch.nn.utils.rnn.pack_padded_sequence(
            inputs, torch.tensor(batch.lengths), batch_first=True, enforce_sorted=False
        )
    _, state = model[0](inputs)
    return model[1]((state[0] if isinstance(state, tuple) else state)[-1])
