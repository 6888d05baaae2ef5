"""Embedding."""

from __future__ import annotations

import numpy as np

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers.base import Context, Layer, Shape
from bppsa_cupy.raw_kernels.gathers import embedding_weight_gradient

#: Integers that float32 holds, all of them.
MOST_ROWS = 1 << 24


class Embedding(Layer):
    """A row of a weight (num_embeddings, embedding_dim) for each index of the input, of any shape; the output
    has the input's shape, followed by embedding_dim.

    padding_idx  an index whose row begins at 0 and gets no gradient; None for no such one. Below 0 it counts
                 from the end

    Indices are whole numbers of the network's dtype, or of any integer dtype. The weight begins with the
    standard normal distribution. The layer is a barrier, and the gradient by its input is 0. Raises
    ShapeError, with the index, for one that is not from 0 to num_embeddings - 1.
    """

    arguments = ("num_embeddings", "embedding_dim", "padding_idx")
    takes_indices = True

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None) -> None:
        self.num_embeddings = as_integer("Embedding", "num_embeddings", num_embeddings, 1, MOST_ROWS)
        self.embedding_dim = as_integer("Embedding", "embedding_dim", embedding_dim, 1)
        self.padding_idx = None
        if padding_idx is not None:
            least = -self.num_embeddings
            given = as_integer("Embedding", "padding_idx", padding_idx, least, self.num_embeddings - 1)
            self.padding_idx = given % self.num_embeddings

    def output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape, self.embedding_dim)

    def parameter_shapes(self) -> dict[str, Shape]:
        return {"weight": (self.num_embeddings, self.embedding_dim)}

    def initialize(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        weight = generator.standard_normal((self.num_embeddings, self.embedding_dim))
        if self.padding_idx is not None:
            weight[self.padding_idx] = 0
        return {"weight": weight}

    def is_barrier(self, training: bool) -> bool:
        return True

    def jacobian(self, input_shape: Shape) -> None:
        return None

    def forward(self, ctx: Context, x: Array) -> Array:
        xp = ctx.device.xp
        indices = ctx.buffer("indices", (x.size,), np.int64)
        given = x.reshape(-1)
        with np.errstate(invalid="ignore"):
            indices[...] = given.astype(np.int64)
        wrong = (indices != given) | (indices < 0) | (indices >= self.num_embeddings)
        if bool(wrong.any()):
            first = float(given[int(wrong.argmax())])
            raise ShapeError(
                f"Embedding({self.num_embeddings}, {self.embedding_dim}) got the index {first:g}: it takes "
                f"whole numbers from 0 to {self.num_embeddings - 1}"
            )
        y = ctx.buffer("output", (*x.shape, self.embedding_dim))
        xp.take(ctx.parameters["weight"], indices, axis=0, out=y.reshape(-1, self.embedding_dim))
        ctx.saved.update(input=x, output=y, indices=indices)
        return y

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        result = ctx.buffer("input_gradient", ctx.saved["input"].shape)
        result[...] = 0
        return result

    def parameter_gradients(self, ctx: Context, gradient: Array) -> None:
        xp, indices, result = ctx.device.xp, ctx.saved["indices"], ctx.gradients["weight"]
        order = xp.argsort(indices, kind="stable")
        first = xp.searchsorted(indices[order], xp.arange(self.num_embeddings + 1))
        ctx.device.launch(
            embedding_weight_gradient, gradient.reshape(-1, self.embedding_dim), order, first, result,
            indices.size, self.num_embeddings, self.embedding_dim,
        )  # fmt: skip
        if self.padding_idx is not None:
            result[self.padding_idx] = 0
