"""Callables of data sets, models, Jacobians and planned products."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import bppsa_cupy as bp
from bppsa_cupy.data import batches, load
from bppsa_cupy.models import build_model
from fuzzing.call import Call, of_method, plain
from fuzzing.calls_training import dataset


def records() -> bp.JacobianRecords:
    """The steps of a GRU, of three samples."""
    net = bp.Sequential([bp.GRU(2, 3, outputs="last"), bp.Linear(3, 2)], (4, 2), device="host")
    net.forward(np.linspace(-1, 1, 24, dtype="float32").reshape(3, 4, 2))
    return net.transposed_jacobians().where(layer=0)


def product() -> bp.PlannedProduct:
    return bp.plan_product(bp.Pattern.dense(3, 2), bp.Pattern.diagonal(2))


def planned(a: Any, b: Any, c: Any, device: Any = None) -> Any:
    made = bp.plan_product(a, b, c, device=device)
    return made.pattern, made.multiply_adds


def multiplied(a: Any, b: Any, out: Any = None) -> Any:
    return product()(a, b, out=out)


def bound(a: Any, b: Any, out: Any) -> Any:
    product().bind(a, b, out=out)()
    return out


def saved(path: Any) -> Any:
    product().save(path)
    return bp.PlannedProduct.load(path).pattern


def of_epoch(**given: Any) -> list[Any]:
    return list(batches(**given))


def arrays_of(**given: Any) -> Any:
    found = load(**given)
    return found.train.inputs, found.train.labels, found.classes, found.normalization


def built(**given: Any) -> Any:
    return build_model(**given).state_dict()


def calls(folder: Path) -> list[Call]:
    """All of them; `folder` holds what readers are given."""
    product().save(folder / "product.h5")
    rng = np.random.default_rng(0)
    np.savez(folder / "d.npz", x=rng.random((4, 1, 3, 3)).astype("float32"), y=np.arange(4))
    values = {"a": np.arange(6, dtype="float32"), "b": np.ones((2, 4), "float32")}
    out = partial(np.zeros, (6, 4), "float32")
    sample = {"layer": 0, "path": "", "inner": 0, "direction": "forward", "steps": [0, 2]}
    dense = bp.Pattern.dense(2, 3)
    return [
        plain("batches", of_epoch, lambda: {
            "split": dataset().train, "batch_size": 4, "seed": 0, "epoch": 1, "shuffle": True, "start": 1,
            "dtype": "float64", "augment": "crop-flip"}),
        plain("load", arrays_of, lambda: {
            "source": folder / "d.npz", "classes": 5, "normalize": True, "seed": 0}),
        plain("build_model", built, lambda: {
            "spec": "lenet5", "input_shape": (1, 28, 28), "classes": 3, "seed": 0, "dtype": "float32",
            "device": "host"}),
        plain("plan_product", planned, lambda: {
            "a": bp.Pattern.diagonal(2), "b": dense.to_scipy(), "c": bp.Pattern.dense(3, 1),
            "device": "host"}),
        plain("PlannedProduct", multiplied, lambda: {**values, "out": out()}),
        plain("PlannedProduct.bind", bound, lambda: {**values, "out": out()}),
        of_method(product, "to_scipy", values=lambda _: out(), sample=1),
        plain("PlannedProduct.load", bp.PlannedProduct.load, lambda: {
            "path": folder / "product.h5", "device": "host", "foreign": False}),
        plain("PlannedProduct.save", saved, lambda: {"path": folder / "s.h5"}),
        of_method(records, "where", **sample),
        of_method(records, "sample", sample=1),
        of_method(lambda: records()[0], "to_scipy", sample=1),
        plain("JacobianRecords", bp.JacobianRecords, lambda: {"records": list(records())}),
        plain("lyapunov_exponents", bp.lyapunov_exponents, lambda: {
            "records": records(), "count": 2, "skip": 1, "average": "mean", "lengths": np.array([4, 2, 3])}),
        plain("singular_values", bp.singular_values, lambda: {"records": records()}),
        plain("span_product", bp.span_product, lambda: {"records": records()}),
        plain("log_gradient_norms", bp.log_gradient_norms, lambda: {
            "records": records(), "gradient": np.ones((3, 3))}),
        plain("Pattern.from_scipy", bp.Pattern.from_scipy, lambda: {"matrix": dense.to_scipy()}),
        of_method(lambda: dense, "to_scipy", data=lambda _: np.ones(6)),
    ]  # fmt: skip
