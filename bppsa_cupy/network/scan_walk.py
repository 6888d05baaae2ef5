"""The way back by scans over the runs of layers, inside of residual blocks too; VJPs of what lies between."""

from __future__ import annotations

from functools import partial

from bppsa_cupy.devices import Array
from bppsa_cupy.errors import PlanError
from bppsa_cupy.layers import Residual
from bppsa_cupy.layers.residual import ResidualContext
from bppsa_cupy.network.passes import SectionPass
from bppsa_cupy.network.run_scans import RunScans
from bppsa_cupy.network.sections import Run


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
        result: Array | None = gradient
        for run, layers in at.section.back():
            if result is None:
                return None
            if run is not None and self.scans(run):
                assert self._scans is not None
                wanted = at.section.wants(run.start, want_input)
                result = self._scans.back_through(run, at, result, self._method, wanted)
            else:
                stack, cross = at.section.stack, partial(self.cross, at)
                result = stack.backward(at.contexts, result, want_input, at.by_outputs, layers, cross)
        return result

    def scans(self, run: Run) -> bool:
        """Whether a run is scanned, and not crossed by its one element's VJP. Raises PlanError where there is
        something to scan and no plan."""
        if self._scans is None and len(run.elements) > 1:
            raise PlanError(
                f"method {self._method!r} scans by a plan and none is in use: net.use(net.plan()), or "
                "net.use(Plan.load(path)) with a file of bppsa-plan build"
            )
        return self._scans is not None

    def cross(self, at: SectionPass, index: int, gradient: Array, want_input: bool) -> Array | None:
        """Go back through one layer by its VJP, through a residual block by the scans inside."""
        layer, ctx = at.section.stack.layers[index], at.contexts[index]
        if not isinstance(layer, Residual) or not isinstance(ctx, ResidualContext):
            return layer.backward(ctx, gradient, want_input)

        def cross_branch(name: str, gradient: Array, want_input: bool) -> Array | None:
            return self.back_through(at.branch(index, name), gradient, want_input)

        return layer.backward_by(ctx, gradient, want_input, cross_branch)
