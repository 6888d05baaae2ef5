"""The backward pass: a VJP a layer, or a scan over each run of layers with CSR Jacobians."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

from bppsa_cupy.arguments import is_one_of
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import PlanError, ShapeError
from bppsa_cupy.network.forward import set_state_gradients
from bppsa_cupy.network.passes import Pass
from bppsa_cupy.network.run_scans import RunScans, ScanWalk
from bppsa_cupy.plan import SCHEDULES

METHODS = ("auto", "bp", *SCHEDULES)


@dataclass(frozen=True)
class BackwardReport:
    """What a backward pass ran.

    method     "bp", "linear", "blelloch" or "hybrid"
    requested  the method that was asked for
    reason     why this one
    schedules  one a run of layers, the first run's first, e.g. "hybrid of 2 levels: 7 mv and 3 mm in 6
               levels"; empty for bp
    backward_ways  how each recurrent layer went back over time, and why: one an inner layer and direction,
               e.g. "0 RNN l0: chunked, 300 chunks of 100 (measured on cuda)"
    launches   kernels launched, by name; `launched` is their sum
    device     the device's name
    """

    method: str
    requested: str
    reason: str
    schedules: tuple[str, ...]
    launches: dict[str, int]
    device: str
    backward_ways: tuple[str, ...] = ()

    @property
    def launched(self) -> int:
        return sum(self.launches.values())


class Backward:
    """The backward passes of one network.

    scans  the scans by the plan in use; None without a plan
    """

    def __init__(self) -> None:
        self.scans: RunScans | None = None
        self._last: weakref.ref[Pass] | None = None

    def run(
        self, current: Pass, given: Any, method: str, input_gradient: bool, state_gradients: Any
    ) -> tuple[Array | None, BackwardReport]:
        """Fill the network's gradients; the gradient by the input where asked for, and the report.

        given, state_gradients  the gradients by the output, and by the final states of recurrent layers

        Raises PlanError for an unknown method, PlanMismatchError where the plan in use was made for another
        architecture, ShapeError for gradients of another shape or dtype.
        """
        if not is_one_of(method, METHODS):
            raise PlanError(f"method {method!r} was asked for: the methods are {', '.join(METHODS)}")
        gradient = checked_gradient(current, given)
        set_state_gradients(current, state_gradients)
        requested, reason = method, "as asked for"
        if method != "bp" and self.scans is not None:
            self.scans = self.scans.fitting(current.architecture)
        if method == "auto":
            method, reason = "bp", "no plan is in use"
            if self.scans is not None:
                method, reason = self.scans.choose(current.batch)
        device = current.parameters.device
        launched = device.launched
        before = dict(launched)
        self._forget_gradients()
        self._last = weakref.ref(current)
        for ctx in current.layers:
            ctx.method = requested
        walkers = current.walkers()
        for walker in walkers:
            walker.ctx.went_back = False
        if method == "bp":
            result = self._by_vjps(current, gradient, input_gradient)
        else:
            result = self._by_scan(current, gradient, method, input_gradient)
        report = BackwardReport(
            method=method,
            requested=requested,
            reason=reason,
            schedules=self.scans.describe() if self.scans is not None and method != "bp" else (),
            launches={
                name: count - before.get(name, 0)
                for name, count in launched.items()
                if count > before.get(name, 0)
            },
            device=device.name,
            backward_ways=tuple(
                line for walker in walkers for line in walker.labelled(walker.ctx.backward_ways)
            ),
        )
        return result, report

    def _forget_gradients(self) -> None:
        """Drop the last pass's gradients by output: the buffers they view are about to be written over."""
        last = self._last() if self._last is not None else None
        if last is not None:
            last.forget_gradients()

    def _by_vjps(self, current: Pass, gradient: Array, input_gradient: bool) -> Array | None:
        """Back-propagation through all layers."""
        return by_vjp(current, gradient, range(len(current.layers)), input_gradient)

    def _by_scan(self, current: Pass, gradient: Array, method: str, input_gradient: bool) -> Array | None:
        """Scans over the runs, VJPs over what lies between them, from the last layer to the first."""
        return ScanWalk(self.scans, method).back_through(current.whole, gradient, input_gradient)


def by_vjp(current: Pass, gradient: Array, layers: range, input_gradient: bool) -> Array | None:
    """Equation 3, a layer at a time, over `layers`; the gradient by the first one's input."""
    by_outputs = current.output_gradients
    return current.architecture.backward(current.layers, gradient, input_gradient, by_outputs, layers)


def checked_gradient(current: Pass, given: Any) -> Array:
    """The gradient by the output, on the device. Raises ShapeError."""
    array, expected = current.parameters.device.asarray(given), current.output.shape
    if array.shape != expected or array.dtype != current.parameters.dtype:
        raise ShapeError(
            f"backward got a gradient of {array.dtype} and shape {tuple(array.shape)}: the output is "
            f"{current.dtype} of shape {tuple(expected)}"
        )
    return array
