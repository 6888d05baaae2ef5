"""Tangent vectors along the trajectory of a step that is written in JAX."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bppsa_cupy.errors import ShapeError
from bppsa_cupy.records.streaming import Flow


class JaxFlow(Flow):
    """h_t = step(x_t, h_{t-1}) for a pytree of arrays (S,) or (B, S); many steps in one compiled loop.

    Attributes
    ----------
    flat
        The present state, the arrays of a pytree side by side.
    """

    chunk = 1024

    def __init__(self, step: Callable[..., Any], h0: Any) -> None:
        self._step = step
        states, self._form = jax.tree.flatten(jax.tree.map(jnp.asarray, h0))
        kinds = {(h.ndim, str(h.dtype)) for h in states}
        if len(kinds) != 1 or not kinds <= {(n, d) for n in (1, 2) for d in ("float32", "float64")}:
            shapes = ", ".join(f"{h.dtype} {h.shape}" for h in states)
            raise ShapeError(
                f"h0 has {shapes or 'no arrays'}: pass float32 or float64 arrays of shape (S,), or (B, S) "
                "for a batch"
            )
        self._ends = np.cumsum([h.shape[-1] for h in states])[:-1].tolist()
        self.flat = jnp.concatenate(states, -1)
        self.size = self.flat.shape[-1]
        self.batch = len(self.flat) if self.flat.ndim == 2 else None
        self._at_points: Any = None
        self._run = jax.jit(self._loop, static_argnames="every")

    @property
    def state(self) -> Any:
        return jax.tree.unflatten(self._form, jnp.split(self.flat, self._ends, -1))

    def begin(self, tangent: np.ndarray) -> None:
        self._vectors = jnp.asarray(tangent, self.flat.dtype).swapaxes(-1, -2)

    @property
    def tangent(self) -> np.ndarray:
        """The tangent vectors on the host."""
        return np.asarray(self._vectors).swapaxes(-1, -2)

    def stack(self, inputs: list[Any]) -> Any:
        return jax.tree.map(lambda *parts: np.stack(parts), *inputs)

    def linearize(self, x: Any, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self._at_points is None:

            def both(x: Any, h: Any) -> Any:
                return self.evaluate(x, h), jax.jacfwd(partial(self.evaluate, x))(h)

            self._at_points = jax.jit(jax.vmap(both, in_axes=(None if x is None else 0, 0)))
        after, jacobian = self._at_points(x, jnp.asarray(points, self.flat.dtype))
        return np.asarray(after, np.float64), np.asarray(jacobian, np.float64)

    def evaluate(self, x: Any, flat: Any) -> Any:
        """The next state of a flat one."""
        h = jax.tree.unflatten(self._form, jnp.split(flat, self._ends, -1))
        parts = jax.tree.leaves(self._step(h) if x is None else self._step(x, h))
        shapes = [jnp.shape(part) for part in parts]
        if shapes != [part.shape for part in jax.tree.leaves(h)]:
            raise ShapeError(
                f"the step returned arrays of shapes {shapes} for a state of shape {flat.shape}: return the "
                "next state with the shapes of the state"
            )
        return jnp.concatenate(parts, -1).astype(flat.dtype)

    def advance(self, inputs: Any, steps: int, every: int) -> np.ndarray:
        length = max(1, self.chunk // every) * every
        if inputs is not None and steps < length:  # one compiled loop serves every number of steps
            inputs = jax.tree.map(lambda a: np.concatenate([a, np.repeat(a[:1], length - steps, 0)]), inputs)
        self.flat, self._vectors, logs = self._run(inputs, self.flat, self._vectors, steps, every=every)
        return np.asarray(logs[: -(-steps // every)], np.float64)

    def _loop(self, inputs: Any, flat: Any, vectors: Any, steps: Any, *, every: int) -> Any:
        """The loop over QR decompositions, and inside of it over the steps between two of them."""

        def move(step: Any, carried: Any) -> Any:
            flat, vectors = carried
            x = None if inputs is None else jax.tree.map(lambda a: a[step], inputs)
            after, push = jax.linearize(partial(self.evaluate, x), flat)
            return after, jax.vmap(push, in_axes=-1, out_axes=-1)(vectors)

        def decompose(number: Any, carried: Any) -> Any:
            flat, vectors, logs = carried
            first = number * every
            if every == 1:
                flat, vectors = move(first, (flat, vectors))
            else:
                last = jnp.minimum(first + every, steps)
                flat, vectors = jax.lax.fori_loop(first, last, move, (flat, vectors))
            if vectors.shape[-1] == 1:
                norms = jnp.linalg.norm(vectors, axis=-2)
                return flat, vectors / norms[..., None, :], logs.at[number].set(jnp.log(norms))
            q, r = jnp.linalg.qr(vectors)
            diagonal = jnp.diagonal(r, axis1=-2, axis2=-1)
            return flat, q, logs.at[number].set(jnp.log(jnp.abs(diagonal)))

        shape = max(1, self.chunk // every), *vectors.shape[:-2], vectors.shape[-1]
        logs = jnp.zeros(shape, vectors.dtype)
        return jax.lax.fori_loop(0, -(-steps // every), decompose, (flat, vectors, logs))
