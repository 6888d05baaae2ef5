"""Files that are put to use once they are read: a plan that goes back, a product, a training that goes on.

Each is refused by name, or gives the right result."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import bppsa_cupy as bp
from bppsa_cupy.plan import Plan
from bppsa_cupy.training.checkpoint import load_checkpoint, save_checkpoint
from bppsa_cupy.training.settings import Settings
from bppsa_cupy.training.state import restore_from, snapshot
from fuzzing.call import images, network
from fuzzing.calls_training import dataset

#: The largest size of a matrix whose product is computed again.
LARGEST = 10_000
SETTINGS = Settings(batch_size=2)


class PlanInUse:
    """A network goes back by a plan that was read, and by VJPs: the gradients are equal."""

    def __init__(self, file: Path) -> None:
        self.net = network()
        self.net.plan(batch_size=2).save(file)
        y = self.net.forward(images())
        self.gradient = np.ones(y.shape, y.dtype)
        self.net.backward(self.gradient, "bp")
        self.expected = {name: array.copy() for name, array in self.net.gradients.items()}
        self.read(file, foreign=False)

    def read(self, path: Path, foreign: bool) -> None:
        plan = Plan.load(path, foreign=foreign)
        try:
            self.net.use(plan)
            self._go_back(plan)
        except bp.PlanError as error:  # of a plan, which no longer knows its file
            raise type(error)(f"{path}: {error}") from error

    def _go_back(self, plan: Plan) -> None:
        for method in plan.schedules:
            self.net.gradients.flat[...] = np.nan
            self.net.backward(self.gradient, method)
            for name, array in self.expected.items():
                np.testing.assert_allclose(self.net.gradients[name], array, 1e-4, 1e-5, err_msg=method)


class ProductInUse:
    """A product that was read multiplies, and SciPy: the values are equal."""

    def __init__(self, file: Path) -> None:
        wide, tall = bp.Pattern.dense(3, 5), bp.Pattern((5, 4), [0, 1, 1, 3, 4, 6], [2, 0, 3, 1, 0, 2])
        bp.plan_product(wide, tall, bp.Pattern.diagonal(4)).save(file)
        self.read(file, foreign=False)

    def read(self, path: Path, foreign: bool) -> None:
        product = bp.PlannedProduct.load(path, foreign=foreign)
        if max(size for factor in product.factors for size in factor.shape) > LARGEST:
            return
        values = [np.arange(1.0, 1 + 2 * factor.nnz).reshape(-1, 2) for factor in product.factors]
        found = product(*values)
        for sample in range(2):
            matrices = [f.to_scipy(v[:, sample]) for f, v in zip(product.factors, values, strict=True)]
            expected = matrices[0]
            for matrix in matrices[1:]:
                expected = expected @ matrix
            difference = abs(product.to_scipy(found, sample) - expected)
            assert not difference.nnz or difference.max() <= 1e-9 * abs(expected).max()


class Resumed:
    """A training goes on from a checkpoint that was read: everything is set, or nothing."""

    def __init__(self, file: Path) -> None:
        self.data, net, optimizer = dataset(), *self._made()
        net.forward(images())
        net.backward(np.ones((2, 3), "float32"), "bp")
        optimizer.step(net.gradients)
        save_checkpoint(file, snapshot(net, optimizer, SETTINGS, self.data, 1, 3))

    @staticmethod
    def _made() -> tuple[bp.Sequential, bp.SGD]:
        net = network()
        return net, bp.SGD(net.parameters, lr=0.1, momentum=0.9, groups=[{"params": "4", "lr": 0.01}])

    def read(self, path: Path, foreign: bool) -> None:
        net, optimizer = self._made()
        before = net.state_dict(), optimizer.state_dict(), dict(net.random_state)
        try:
            step = restore_from(net, optimizer, path, SETTINGS, self.data, foreign=foreign)
        except bp.BppsaError:
            np.testing.assert_equal(
                (net.state_dict(), optimizer.state_dict(), dict(net.random_state)), before
            )
            raise
        checkpoint = load_checkpoint(path)
        assert step == checkpoint.step
        np.testing.assert_equal(
            net.state_dict(), {k: np.float32(v) for k, v in checkpoint.parameters.items()}
        )
        net.forward(images())
        net.backward(np.ones((2, 3), "float32"), "bp")
        optimizer.step(net.gradients)
