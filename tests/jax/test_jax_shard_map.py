"""`bppsa_cupy.jax` under `jax.shard_map` on two devices, in a process that starts with two: results and
gradients are those of one device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax_cases import assert_same, bj, jax, jnp, loss_of

import bppsa_cupy as bp

#: Functions by name.
FUNCTIONS: dict[str, Any] = {
    "RNN": lambda: bj.RNN(3, 4),
    "GRU": lambda: bj.GRU(3, 4, 2, bidirectional=True, batch_first=False),
    "LSTM": lambda: bj.LSTM(3, 4),
    "CellLayer": lambda: bj.CellLayer(bp.Cell.built_in("gru"), 3, 4),
}


@pytest.mark.long
def test_two_devices_give_what_one_gives() -> None:
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(Path(__file__).parents[1] / "support"),
    }
    command = [sys.executable, __file__, *FUNCTIONS, "linear_scan"]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8")
    assert not done.returncode, done.stderr


def shard(function: Any, batch_axis: int) -> Any:
    """`function` of (shared, x) summed over devices, each of which has a part of x's batch."""
    parts = jax.sharding.PartitionSpec
    return jax.shard_map(
        lambda shared, x: jax.lax.psum(function(shared, x), "devices"),
        mesh=jax.sharding.Mesh(np.array(jax.devices()), ("devices",)),
        in_specs=(parts(), parts(*[None] * batch_axis, "devices")), out_specs=parts(), check_vma=False,
    )  # fmt: skip


def compare(function: Any, shared: Any, x: Any, batch_axis: int = 0) -> None:
    wanted = jax.value_and_grad(function, (0, 1))(shared, x)
    actual = jax.jit(jax.value_and_grad(shard(function, batch_axis), (0, 1)))(shared, x)
    assert_same(actual, wanted)


def compare_layer(name: str) -> None:
    function = FUNCTIONS[name]()
    layer = function.layer
    x = np.random.default_rng(0).standard_normal((4, 6, layer.input_size))
    if not layer.batch_first:
        x = x.swapaxes(0, 1)

    def loss(params: Any, x: Any) -> Any:
        return loss_of(jax.tree.map(jnp.abs, function(params, x)))

    params = function.init(jax.random.key(0), jnp.float64)
    compare(loss, params, x, 0 if layer.batch_first else 1)
    if name == "GRU":
        without_jit = jax.grad(shard(loss, 1))(params, x)
        assert_same(without_jit, jax.grad(loss)(params, x))


def compare_scan() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((5, 3)), rng.standard_normal((4, 5, 3))

    def loss(a: Any, b: Any) -> Any:
        return (bj.linear_scan(a, b, resets=np.arange(5) == 2) ** 3).sum()

    def steep(a: Any, b: Any) -> Any:
        """A loss of the gradient by a."""
        return (jax.grad(loss)(a, b) ** 2).sum()

    for function in (loss, lambda a, b: jax.jvp(lambda b: loss(a, b), (b,), (b,))[1]):
        compare(function, a, b)
    summed = shard(loss, 0)
    assert_same(jax.jit(jax.grad(lambda a: (jax.grad(summed)(a, b) ** 2).sum()))(a), jax.grad(steep)(a, b))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    assert len(jax.devices()) == 2
    for name in sys.argv[1:]:
        compare_scan() if name == "linear_scan" else compare_layer(name)
