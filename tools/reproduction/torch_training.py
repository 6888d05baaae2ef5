"""Training by PyTorch, from a network's parameters, on its batches; alone, and beside ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from tqdm import tqdm

from bppsa_cupy.data import Batch, Dataset, batches, number_of_batches
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.layers import Dropout
from bppsa_cupy.layers.recurrent import Recurrent
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools.machine import torch_device
from bppsa_cupy.tools.reproduction.curves import NOISE, PYTORCH, TEST_BATCH, Curve, train_by_us
from bppsa_cupy.training.loop import evaluate
from bppsa_cupy.training.optimizers import Optimizer
from bppsa_cupy.training.settings import Settings


def train_by_torch(
    network: Sequential,
    dataset: Dataset,
    settings: Settings,
    optimizer: type[Optimizer],
    threads: int = 1,
    **options: Any,
) -> Curve:
    """Train a copy of `network` by PyTorch's optimizer of that name, with these options.

    Batches, their random changes, loss, rates and clipping are those of `training.train` with the same
    settings; what Dropout drops is what the network's own layers drop, and its `random_state` moves on. At
    the end the network tests the copy's parameters and buffers, if there are test samples. A recurrent layer
    must be the first of two, and a linear one takes its last state. Runs on the network's kind of device,
    with `threads` threads on the host. Raises BppsaError where PyTorch is missing, and for Dropout inside of
    Residual.
    """
    try:
        import torch
    except ImportError as cause:
        raise BppsaError(
            f"the comparison needs PyTorch, which cannot be imported ({cause}): install the extra 'torch'"
        ) from cause
    torch.set_num_threads(threads)
    model = _Model(torch, network)
    update = getattr(torch.optim, optimizer.__name__)(model.module.parameters(), **options)
    curve = Curve()
    per_epoch = number_of_batches(dataset.train, settings.batch_size)
    last, schedule = settings.last_step(per_epoch), settings.schedule(per_epoch)
    bar = tqdm(total=last, desc=PYTORCH, unit="step", disable=not settings.progress, dynamic_ncols=True)
    started = time.perf_counter()
    with bar:
        for epoch in range(-(-last // per_epoch)):
            model.module.train()
            source = batches(
                dataset.train, settings.batch_size, seed=settings.seed, epoch=epoch, dtype=network.dtype,
                augment=settings.augment,
            )  # fmt: skip
            for batch in islice(source, last - len(curve.losses)):
                loss = model.loss(batch, settings.label_smoothing)
                update.zero_grad()
                loss.backward()
                curve.seconds.append(time.perf_counter() - started)
                if settings.clip is not None:
                    torch.nn.utils.clip_grad_norm_(model.module.parameters(), settings.clip)
                if schedule is not None:
                    for group in update.param_groups:
                        group["lr"] = options["lr"] * schedule.factor(len(curve.losses), per_epoch)
                update.step()
                curve.losses.append(loss.item())
                bar.update()
    curve.state = model.state()
    if dataset.test is not None:
        network.load_state_dict(curve.state)
        curve.evaluations = [evaluate(network, dataset.test, TEST_BATCH)]
    return curve


def train_runs(
    build: Callable[[], Sequential],
    dataset: Dataset,
    runs: Mapping[str, Settings],
    optimizer: type[Optimizer],
    threads: int = 1,
    **options: Any,
) -> dict[str, Curve]:
    """Curves by run, one after another, each of a network that `build` makes: that of PYTORCH by PyTorch, all
    others by bppsa-cupy, with the same optimizer and options.

    A step of each run but those under noise is made apart before, as the first one compiles kernels.
    """

    def train_one(name: str, settings: Settings) -> Curve:
        network = build()
        if name == PYTORCH:
            return train_by_torch(network, dataset, settings, optimizer, threads, **options)
        return train_by_us(network, dataset, settings, optimizer(network.parameters, **options))

    curves = {}
    for name, settings in runs.items():
        if not name.startswith(NOISE):
            train_one(name, replace(settings, iterations=1, progress=False))
        curves[name] = train_one(name, settings)
    return curves


class _Model:
    """PyTorch's copy of a network, and what is asked of it by the batch."""

    def __init__(self, torch: Any, network: Sequential) -> None:
        self.torch, self.network, self.device = torch, network, torch_device(network.device)
        self.recurrent = isinstance(network.layers[0], Recurrent)
        from bppsa_cupy.tools.torch_modules import torch_network

        self.module = torch_network(network)
        network.train()
        dropouts = [index for index, layer in enumerate(network.layers) if isinstance(layer, Dropout)]
        for index in dropouts:
            self.module[index].forward = self._dropout(index)
        count = sum(isinstance(module, torch.nn.Dropout) for module in self.module.modules())
        if count > len(dropouts):
            raise BppsaError(
                "the network has Dropout inside of Residual, where PyTorch's copy drops other elements: "
                "put it outside"
            )

    def loss(self, batch: Batch, label_smoothing: float = 0.0) -> Any:
        """The mean over the batch, of which PyTorch can take gradients."""
        labels, scores = self.torch.tensor(batch.labels, device=self.device), self._scores(batch)
        self.network.random_state["passes"] += self.module.training
        cross_entropy = self.torch.nn.functional.cross_entropy
        return cross_entropy(scores, labels, label_smoothing=label_smoothing)

    def state(self) -> dict[str, np.ndarray]:
        """Copies of parameters and buffers."""
        values: Mapping[str, Any] = self.module.state_dict()
        return {name: np.array(value.numpy(force=True)) for name, value in values.items()}

    def _scores(self, batch: Batch) -> Any:
        inputs = self.torch.tensor(batch.inputs, device=self.device)
        if not self.recurrent:
            return self.module(inputs)
        if batch.lengths is not None:
            inputs = self.torch.nn.utils.rnn.pack_padded_sequence(
                inputs, self.torch.tensor(batch.lengths), batch_first=True, enforce_sorted=False
            )
        _, state = self.module[0](inputs)
        return self.module[1]((state[0] if isinstance(state, tuple) else state)[-1])

    def _dropout(self, index: int) -> Any:
        """A module's `forward` that drops what layer `index` of the network drops in the same pass."""

        def forward(x: Any) -> Any:
            if not self.module.training:
                return x
            ones, device = np.ones(tuple(x.shape), self.network.dtype), self.network.device
            ctx = self.network.new_context(index)
            factors = device.to_host(self.network.layers[index].forward(ctx, device.asarray(ones)))
            return x * self.torch.tensor(factors, device=self.device)

        return forward
