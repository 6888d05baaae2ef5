"""Callables of training: settings, optimizers, schedules of the learning rate, pipelines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import bppsa_cupy as bp
from bppsa_cupy.data import Dataset, Split
from bppsa_cupy.pipeline.trace import Trace
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.optimizer import Optimizer
from bppsa_cupy.training.schedules import RateSchedule
from bppsa_cupy.training.settings import Settings
from fuzzing.call import Call, images, network, plain


def dataset() -> Dataset:
    """Six images for the network, and two to test it with."""
    inputs = np.concatenate([images()] * 3)
    train, test = (Split(inputs[:size], np.arange(size) % 3, None) for size in (6, 2))
    return Dataset("made", (2, 4, 4), 3, train, test, None)


def with_gradients(make: Callable[..., Optimizer], **options: Any) -> tuple[bp.Sequential, Optimizer]:
    """A network whose gradients are there, and its optimizer."""
    net = network()
    net.backward(net.forward(images()), method="bp")
    return net, make(net.parameters, **options)


def trained_by(**given: Any) -> Any:
    """What two steps with these settings come to; a hook would raise what it likes, so none is called."""
    settings = Settings(**given)
    few = 2 if settings.iterations is None else min(settings.iterations, 2)
    short = replace(settings, epochs=min(settings.epochs, 2), iterations=few, gradient_hook=None)
    net = network()
    history = train(net, dataset(), bp.SGD(net.parameters, lr=0.1), short)
    return history.losses, net.state_dict()


def piped(**given: Any) -> Any:
    """What two steps of a pipeline come to."""
    pipeline = bp.Pipeline(**given)
    net = pipeline.network
    optimizer = bp.SGD(net.parameters, lr=0.1, momentum=0.9)
    history = train(pipeline, dataset(), optimizer, Settings(iterations=2, batch_size=2))
    return history.losses, net.state_dict()


def trained(**given: Any) -> Any:
    return train(**given).losses


def to_train(**more: Any) -> dict[str, Any]:
    net = network()
    own = {"trained": net, "dataset": dataset(), "optimizer": bp.SGD(net.parameters, lr=0.1)}
    return {**own, "settings": Settings(iterations=1, batch_size=2), "resume": None, **more}


def rates(text: Any) -> list[float]:
    """The factors of nine steps, of three epochs."""
    schedule = RateSchedule.read(text)
    assert RateSchedule.read(str(schedule)) == schedule
    of_all = schedule.over(9)
    return [of_all.factor(step, 3) for step in range(9)]


def _step(make: Callable[..., Optimizer], **options: Any) -> Callable[[], tuple[Any, dict[str, Any]]]:
    """A step, and hyper-parameters that are set before it."""

    def both() -> tuple[Callable[..., Any], dict[str, Any]]:
        net, optimizer = with_gradients(make, **options)
        names = (*optimizer.hyperparameters, "lr_factor")

        def step(gradients: Any, part: Any = None, **settings: Any) -> np.ndarray:
            for name, value in settings.items():
                setattr(optimizer, name, value)
            optimizer.step(gradients, part)
            return net.parameters.flat

        own = {name: getattr(optimizer, name) for name in names}
        return step, {"gradients": net.gradients, "part": None, **own}

    return both


def _loaded(make: Callable[..., Optimizer], **options: Any) -> Callable[[], tuple[Any, dict[str, Any]]]:
    """A state that is loaded, or refused and nothing set; then a step, and the state again."""

    def both() -> tuple[Callable[..., Any], dict[str, Any]]:
        net, optimizer = with_gradients(make, **options)
        optimizer.step(net.gradients)

        def load(state: Any) -> Any:
            before = optimizer.state_dict()
            try:
                optimizer.load_state_dict(state)
            except bp.BppsaError:
                np.testing.assert_equal(optimizer.state_dict(), before)
                raise
            optimizer.step(net.gradients)
            return optimizer.state_dict(), net.parameters.flat

        return load, {"state": optimizer.state_dict()}

    return both


def calls(folder: Path) -> list[Call]:
    """All of them; `folder` is for what they write."""
    groups = [{"params": ["4"], "lr": 0.01}, {"params": "0.weight"}]
    every = {
        "method": "bp", "epochs": 2, "iterations": 2, "batch_size": 2, "seed": 0,
        "checkpoint": folder / "c.h5", "log": folder / "l.jsonl", "progress": False, "clip": 1.0,
        "lr_schedule": "warmup:2,cosine:9", "augment": "crop-flip",
        "label_smoothing": 0.1, "gradient_hook": None,
    }  # fmt: skip
    pipeline = {"ppv": (1,), "schedule": "stale", "group": None, "micro_batches": 1, "predict": False}
    micro = {**pipeline, "schedule": "gpipe", "micro_batches": 2, "trace": None, "non_pipelined_after": 1}
    return [
        plain("Settings", trained_by, lambda: dict(every)),
        plain("train", trained, to_train),
        plain("Pipeline", piped, lambda: {"net": network(), **pipeline, "trace": Trace()}),
        plain("Pipeline of micro-batches", piped, lambda: {"net": network(), **micro}),
        plain("RateSchedule", rates, lambda: {"text": "warmup:2,cosine:9,inv:0.1:0.75"}),
        plain("RateSchedule by epochs", rates, lambda: {"text": "step:1:0.5,half:2"}),
        plain("SGD of groups", bp.SGD, lambda: {
            "parameters": network().parameters, "lr": 0.1, "momentum": 0.9, "dampening": 0.0,
            "weight_decay": 0.1, "nesterov": True, "groups": groups}),
        plain("Adam of groups", bp.Adam, lambda: {
            "parameters": network().parameters, "betas": (0.9, 0.99), "eps": 1e-8, "groups": groups}),
        Call("SGD.step", _step(bp.SGD, lr=0.1, momentum=0.9)),
        Call("AdamW.step", _step(bp.AdamW, lr=0.1, groups=groups)),
        Call("SGD.load_state_dict", _loaded(bp.SGD, lr=0.1, momentum=0.9, groups=groups)),
        Call("Adam.load_state_dict", _loaded(bp.Adam, lr=0.1)),
    ]  # fmt: skip
