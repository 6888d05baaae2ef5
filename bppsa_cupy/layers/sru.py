"""SRU and QRNN: gates of the input alone, and an output gate; and SRU whose gates see the state."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any

from bppsa_cupy.arguments import as_flag, as_integer
from bppsa_cupy.cells import Cell
from bppsa_cupy.cells.definitions import peephole_sru
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers.base import Shape
from bppsa_cupy.layers.cell_layer import CellLayer
from bppsa_cupy.layers.gated_recurrent import GatedRecurrent
from bppsa_cupy.layers.matrix_context import MatrixContext
from bppsa_cupy.raw_kernels.linear_cells import LINEAR_FORMS


class SRU(GatedRecurrent):
    """A simple recurrent unit (Lei et al. 2018) whose gates read the input alone, as `v1=True` of its code:
    c_t = f c_{t-1} + (1 - f) W_c x, h_t = r c_t + (1 - r) x, f = σ(W_f x + b_f), r = σ(W_r x + b_r).

    v1  True; with False, the default of its code, gates read the former state too, and this gives a
        `PeepholeSRU`

    The other arguments are those of `GatedRecurrent`. Parameters a layer and direction, gates stacked as c,
    f, r: weight_ih_l0 (3 H, F), bias_ih_l0 (2 H,) of f and r. Where F is not H, weight_ih_l0 is (4 H, F), and
    its last rows make of x what is added in its place. Its state is c.
    """

    cell = LINEAR_FORMS["sru"]
    biased = (1, 2)

    def __new__(cls, *arguments: Any, v1: bool = True, **options: Any) -> Any:
        if cls is SRU and not as_flag("SRU", "v1", v1):
            return PeepholeSRU(*arguments, **options)
        return super().__new__(cls)

    def __init__(
        self, input_size: int, hidden_size: int, *arguments: Any, v1: bool = True, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, *arguments, **options)

    def skips(self, inputs: int) -> bool:
        return inputs == self.hidden_size


class PeepholeSRU(CellLayer):
    """A simple recurrent unit (Lei et al. 2018, equations 3 to 6) whose gates see the former state, each by a
    weight a unit: c_t = f c_{t-1} + (1 - f) W_c x, h_t = r c_t + (1 - r) x, f = σ(W_f x + b_f + v_f c_{t-1}),
    r = σ(W_r x + b_r + v_r c_{t-1}).

    Arguments are those of `MatrixRecurrent` but for heads. Parameters a layer and direction are those of
    `SRU`, and vf_l0 and vr_l0 (H,). Its state is c. The pass goes forward serially or by Newton's iteration,
    and back serially or by chunks, whose products are blocks of 2 x 2 a unit, of h and c. SymPy is needed to
    make one.
    """

    def __init__(self, input_size: int, hidden_size: int, *arguments: Any, **options: Any) -> None:
        super().__init__(_peephole_cell(), input_size, hidden_size, *arguments, **options)

    @cached_property
    def components(self) -> tuple[int, ...]:
        return (1,)

    def parameter_shapes(self) -> dict[str, Shape]:
        shapes, H = super().parameter_shapes(), self.hidden_size
        for name, shape in shapes.items():
            if name.startswith("weight_ih") and shape[1] == H:
                shapes[name] = (3 * H, H)
            elif name.startswith("bias_ih"):
                shapes[name] = (2 * H,)
        return shapes

    def walked(self, ctx: MatrixContext, arrays: Mapping[str, Array], what: str) -> Mapping[str, Array]:
        whole = super().parameter_shapes()
        return {
            name: array if array.shape == whole[name] else ctx.buffer(f"whole_{what}_{name}", whole[name])
            for name, array in arrays.items()
        }

    def spread_parameters(self, ctx: MatrixContext) -> None:
        # The input that is added goes through the identity: it is a gate, as others are.
        H = self.hidden_size
        whole = self.walked(ctx, ctx.parameters, "parameters")
        for name, array in ctx.parameters.items():
            if whole[name] is array:
                continue
            whole[name][...] = 0
            if name.startswith("bias_ih"):
                whole[name][H : 3 * H] = array
            else:
                whole[name][: 3 * H] = array
                whole[name][3 * H :] = ctx.device.xp.eye(H, dtype=array.dtype)

    def gather_gradients(self, ctx: MatrixContext) -> None:
        H = self.hidden_size
        whole = self.walked(ctx, ctx.gradients, "gradients")
        for name, array in ctx.gradients.items():
            if whole[name] is not array:
                array[...] = whole[name][H : 3 * H] if name.startswith("bias_ih") else whole[name][: 3 * H]


@cache
def _peephole_cell() -> Cell:
    return Cell(
        "peephole_sru",
        gates=["c", "f", "r", "skip"],
        states=["h", "c"],
        parameters=["vf", "vr"],
        recurrent=[],
        step=peephole_sru,
    )


class QRNN(GatedRecurrent):
    """A quasi-recurrent network's layer with fo-pooling (Bradbury et al. 2017, equation 4): c_t = f c_{t-1} +
    (1 - f) z, h_t = o c_t, z = tanh(W_z x + b_z), f and o = σ(likewise).

    window  steps that the gates see, 1 or 2: with 2, W x is W of the former input (of a direction's walk) and
            the present one side by side, and the first step has zeros before it

    The other arguments are those of `GatedRecurrent`. Parameters a layer and direction, gates stacked as z,
    f, o: weight_ih_l0 (3 H, window F), bias_ih_l0 (3 H,). Its state is c.
    """

    cell = LINEAR_FORMS["qrnn"]

    def __init__(
        self, input_size: int, hidden_size: int, *arguments: Any, window: int = 1, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, *arguments, **options)
        self._window = as_integer("QRNN", "window", window, 1)
        if self._window > 2:
            raise ShapeError(f"QRNN got window={window}: it takes 1 or 2")

    @property
    def window(self) -> int:
        return self._window

    @property
    def steps_alone(self) -> bool:
        return super().steps_alone and self._window == 1

    def config(self) -> dict[str, Any]:
        return {**super().config(), "window": self.window}
