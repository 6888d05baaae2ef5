"""RGLRU: the recurrence of Griffin, whose gates see blocks of the input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers.base import Shape
from bppsa_cupy.layers.gated_recurrent import GatedRecurrent
from bppsa_cupy.layers.linear_recurrent import LinearContext
from bppsa_cupy.raw_kernels.linear_cells import LINEAR_FORMS

#: c of the paper: how strong the recurrence gate makes the decay.
SHARPNESS = 8.0
#: |a| of a fresh layer at an open gate, uniform by its square.
LEAST_RADIUS, MOST_RADIUS = 0.9, 0.999


class RGLRU(GatedRecurrent):
    """The real-gated linear recurrent unit (De et al. 2024, section 2.4): h_t = a_t h_{t-1} + sqrt(1 - a_t²)
    i_t x_t, a = exp(-8 softplus(Λ) r), r = σ(W_a x + b_a), i = σ(W_x x + b_x). The derivative of the root is
    1000 at most (appendix A). It has as many units as the input has features.

    heads  parts of the features; each gate's W is block-diagonal, a block a part

    The other arguments are those of `GatedRecurrent`, without hidden_size; there is one inner layer of one
    direction. Parameters: weight_ih_l0 (2 H, H / heads), of each row what lies in its block, W_a before W_x,
    from the normal distribution with variance heads / H; bias_ih_l0 (2 H,), 0; a_param_l0 (H,), Λ, so that a²
    at r = 1 / 8 is uniform in 0.9² to 0.999².
    """

    cell = LINEAR_FORMS["rglru"]
    unit_parameters = ("a_param",)
    biased = (0, 1)

    def __init__(self, input_size: int, *, heads: int = 1, bias: bool = True, **options: Any) -> None:
        super().__init__(input_size, input_size, bias=bias, **options)
        self.heads = as_integer("RGLRU", "heads", heads, 1)
        if self.hidden_size % self.heads:
            raise ShapeError(
                f"RGLRU got heads={heads} and input_size={input_size}: heads must divide the features"
            )
        if self.num_layers > 1 or self.bidirectional:
            raise ShapeError(
                f"RGLRU got num_layers={self.num_layers} and bidirectional={self.bidirectional}: it takes "
                "one layer of one direction; put several in a network"
            )

    def config(self) -> dict[str, Any]:
        config = {**super().config(), "heads": self.heads}
        for name in ("hidden_size", "num_layers", "bidirectional"):
            del config[name]
        return config

    def skips(self, inputs: int) -> bool:
        return True

    def parameter_shapes(self) -> dict[str, Shape]:
        shapes = super().parameter_shapes()
        return {**shapes, "weight_ih_l0": (2 * self.hidden_size, self.hidden_size // self.heads)}

    def initialize(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        shapes, values = self.parameter_shapes(), {}
        deviation = (self.heads / self.hidden_size) ** 0.5
        values["weight_ih_l0"] = deviation * generator.standard_normal(shapes["weight_ih_l0"])
        if self.bias:
            values["bias_ih_l0"] = np.zeros(shapes["bias_ih_l0"])
        squares = generator.uniform(LEAST_RADIUS**2, MOST_RADIUS**2, self.hidden_size)
        values["a_param_l0"] = np.log(np.expm1(-0.5 * np.log(squares)))
        return values

    # ---- Λ as the cell takes it ----

    def unit_values(self, xp: Any, own: Mapping[str, Any]) -> list[Any]:
        return [-SHARPNESS * _softplus(xp, own["a_param"])]

    def unit_gradients(self, xp: Any, own: Mapping[str, Any], by: list[Any]) -> list[Any]:
        return [-SHARPNESS * by[0] / (1 + xp.exp(-own["a_param"]))]

    # ---- products of blocks ----

    def formula_gates(self, seen: Any, weight: Any) -> list[Any]:
        size, found = self.hidden_size // self.heads, []
        for gate in range(2):
            blocks = weight[gate * self.hidden_size : (gate + 1) * self.hidden_size].reshape(-1, size, size)
            parts = seen.reshape(*seen.shape[:-1], self.heads, 1, size) @ blocks.swapaxes(-1, -2)
            found.append(parts.reshape(seen.shape))
        return found

    def multiply_seen(
        self, ctx: LinearContext, seen: Array, weight: Array, bias: Array | None, out: Array
    ) -> None:
        if self.heads == 1:
            super().multiply_seen(ctx, seen, weight, bias, out)
            return
        for columns, rows in self._blocks():
            part = ctx.buffer("part", (*ctx.rows, len(rows)))
            own = None if bias is None else bias[rows]
            self.multiply(ctx, ctx.device.xp.ascontiguousarray(seen[:, :, columns]), weight[rows], own, part)
            out[:, :, rows] = part

    def multiply_back_seen(self, ctx: LinearContext, delta: Array, weight: Array, out: Array) -> None:
        if self.heads == 1:
            super().multiply_back_seen(ctx, delta, weight, out)
            return
        for columns, rows in self._blocks():
            part = ctx.buffer("by_part", (*ctx.rows, columns.stop - columns.start))
            self.multiply_back(ctx, ctx.device.xp.ascontiguousarray(delta[:, :, rows]), weight[rows], part)
            out[:, :, columns] = part

    def multiply_sums_seen(
        self, ctx: LinearContext, delta: Array, seen: Array, out: Array, by_rows: Array
    ) -> None:
        if self.heads == 1:
            super().multiply_sums_seen(ctx, delta, seen, out, by_rows)
            return
        xp = ctx.device.xp
        for columns, rows in self._blocks():
            part = ctx.buffer("sums_part", (len(rows), out.shape[1]))
            own = xp.ascontiguousarray(delta[:, :, rows]), xp.ascontiguousarray(seen[:, :, columns])
            sums = ctx.buffer("by_part_rows", (len(rows),))
            self.multiply_sums(ctx, *own, part, sums)
            out[rows], by_rows[rows] = part, sums

    def _blocks(self) -> list[tuple[slice, np.ndarray]]:
        """Of each head its features, and the rows of both gates that see them."""
        H, size = self.hidden_size, self.hidden_size // self.heads
        features = [np.arange(head * size, (head + 1) * size) for head in range(self.heads)]
        return [(slice(int(own[0]), int(own[-1]) + 1), np.concatenate([own, own + H])) for own in features]


def _softplus(xp: Any, x: Any) -> Any:
    """log(1 + e^x), of numbers that do not overflow."""
    return xp.log1p(xp.exp(-abs(x))) + (x + abs(x)) / 2
