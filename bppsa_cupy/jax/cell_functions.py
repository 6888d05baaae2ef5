"""The functions of cells on JAX's arrays, by the names that the texts of twins have them by."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

sigmoid, tanh, sqrt = jax.nn.sigmoid, jnp.tanh, jnp.sqrt
exponential, expm1, logarithm = jnp.exp, jnp.expm1, jnp.log
sine, cosine, magnitude, select = jnp.sin, jnp.cos, jnp.abs, jnp.where


@jax.custom_jvp
def bounded_root(x: jax.Array) -> jax.Array:
    """The square root of x, whose derivative is 1000 where it were more."""
    return jnp.sqrt(x)


@bounded_root.defjvp
def _bounded_slope(primals: Any, tangents: Any) -> Any:
    return bounded_root(primals[0]), tangents[0] / jnp.sqrt(jnp.maximum(4 * primals[0], 1e-6))


def number(like: jax.Array, value: float) -> float:
    """A number, which takes the arrays' dtype."""
    return value


def multiply_add(x: Any, y: Any, z: Any) -> Any:
    """x y + z"""
    return x * y + z
