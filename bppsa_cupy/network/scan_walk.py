"""The way back by scans over the runs of layers, inside of residual blocks too; VJPs of what lies between."""

from __future__ import annotations

from functools import partial

from bppsa_cupy.devices import Array
from bppsa_cupy.errors import PlanError
from bppsa_cupy.layers import Residual
from bppsa_cupy.layers.residual import ResidualContext
from bppsa_cupy.network.passes import SectionPass
from bppsa_cupy.network.run_scans import RunScans


class ScanWalk:
    """Goes back through sections by one method.

    scans  by the plan in use; None without one: a run of one element, which has nothing to scan, is crossed
           by its VJP then
    """

    def __init__(self, scans: RunScans | None, method: str) -> None:
        self._scans, self._method = scans, method

    def back_through(self, at: SectionPass, gradient: Array, want_input: bool) -> Array | None:
        """Go back through all layers of a section, from the gradient by its output; the one by its input
        where it is wanted. Raises PlanError where there is something to scan and no plan."""
        stop, first_trained = len(at.contexts), at.section.stack.first_trained
        result: Array | None = gradient
        for run in reversed(at.section.runs):
            result = self._by_vjps(at, result, range(run.stop, stop), want_input)
            wanted = want_input or first_trained < run.start
            if result is None:
                return None
            if self._scans is not None:
                result = self._scans.back_through(run, at, result, self._method, wanted)
            elif len(run.elements) == 1:
                result = self._by_vjps(at, result, range(run.start, run.stop), wanted)
            else:
                raise no_plan(self._method)
            if result is None:
                return None
            stop = run.start
        return self._by_vjps(at, result, range(stop), want_input)

    def cross(self, at: SectionPass, index: int, gradient: Array, want_input: bool) -> Array | None:
        """Go back through one layer by its VJP, through a residual block by the scans inside."""
        layer, ctx = at.section.stack.layers[index], at.contexts[index]
        if not isinstance(layer, Residual) or not isinstance(ctx, ResidualContext):
            return layer.backward(ctx, gradient, want_input)

        def cross_branch(name: str, gradient: Array, want_input: bool) -> Array | None:
            return self.back_through(at.branch(index, name), gradient, want_input)

        return layer.backward_by(ctx, gradient, want_input, cross_branch)

    def _by_vjps(self, at: SectionPass, gradient: Array, layers: range, want_input: bool) -> Array | None:
        cross = partial(self.cross, at)
        return at.section.stack.backward(at.contexts, gradient, want_input, at.by_outputs, layers, cross)


def no_plan(method: str) -> PlanError:
    """What is raised where a run has something to scan and no plan is in use."""
    return PlanError(
        f"method {method!r} scans by a plan and none is in use: net.use(net.plan()), or "
        "net.use(Plan.load(path)) with a file of bppsa-plan build"
    )
