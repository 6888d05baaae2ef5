"""Scans over the runs of layers of a network, by a plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.network.architecture import Architecture, Run
from bppsa_cupy.network.passes import Pass
from bppsa_cupy.plan import Partition, Plan, with_input_gradient
from bppsa_cupy.scan.launches import IndexMaps
from bppsa_cupy.scan.numeric import NumericScan, RankScan


class RunScans:
    """One scan a run of layers, set up at its first use and kept for the next pass.

    Over ranks, `over` is the group and the partition of the layers, and each rank runs its steps. Raises
    PlanMismatchError, naming what differs, unless `plan` was made for this architecture.
    """

    def __init__(
        self,
        architecture: Architecture,
        plan: Plan,
        device: Device,
        dtype: np.dtype,
        over: tuple[Any, Partition] | None = None,
    ) -> None:
        architecture.check_plan(plan)
        self.architecture, self.plan, self.device, self.dtype = architecture, plan, device, dtype
        self._over = over
        self._chosen: dict[int, str] = {}
        self._maps = IndexMaps(device)
        self._scans: dict[int, NumericScan] = {}

    def back_through(
        self, part: Run, at: Pass, gradient: Array | None, method: str, want_input: bool
    ) -> Array | None:
        """Go back through a run: fill, scan with VJPs, parameter gradients (equation 2).

        Parameters
        ----------
        gradient
            The gradient with respect to the output of the run, (B, ...). The gradient with respect to its
            input is returned if `want_input` is True. Over ranks, the rank of the run's last layer with a
            Jacobian passes the former, and the rank of the first one returns the latter.
        """
        scan, batch, stack = self.scan(part.position, method, want_input), at.batch, at.architecture
        for k in scan.elements_read:
            ctx, jacobian = at.layers[part.elements[k - 1]], stack.jacobians[part.elements[k - 1]]
            jacobian.fill(self.device, ctx.parameters, ctx.saved, scan.element(k, batch))
        as_layers: dict[int, Array] = {}  # v(k) in the layers' layout, as VJPs take and give it

        def came(k: int, vector: Array) -> None:
            as_layers[k] = vector
            if k in scan.vectors_read:
                scan.vector(k, batch)[...] = vector.reshape(batch, -1).T

        def cross(k: int) -> None:
            index = part.elements[k - 1]
            layer, ctx = stack.layers[index], at.layers[index]
            by_output = as_layers[k] if k in as_layers else self._as_layer(scan, k, index, at)
            at.output_gradients[index] = by_output = by_output.reshape(batch, *stack.shapes[index + 1])
            result = layer.backward(ctx, by_output, True)
            assert result is not None
            came(k + 1, result)

        if 1 in scan.owned:
            assert gradient is not None
            came(1, gradient)
        scan.run_batch(batch, cross)
        crossed = {step.split for step in scan.schedule.steps if step.kind == "vjp"}
        for k in scan.owned:
            index, by_output = part.elements[k - 1], as_layers.get(k)
            if k in crossed:
                continue
            if by_output is None:
                if not stack.layers[index].parameter_shapes():
                    at.output_gradients[index] = scan.vector(k, batch).T
                    continue
                by_output = self._as_layer(scan, k, index, at)
            at.output_gradients[index] = by_output = by_output.reshape(batch, *stack.shapes[index + 1])
            stack.layers[index].parameter_gradients(at.layers[index], by_output)
        if not want_input or len(part.elements) not in scan.owned:
            return None
        last, shape = len(part.elements) + 1, (batch, *stack.shapes[part.start])
        if last in as_layers:
            return as_layers[last].reshape(shape)
        result = at.layers[part.elements[-1]].buffer("input_gradient", shape)
        result.reshape(batch, -1)[...] = scan.vector(last, batch).T
        return result

    def _as_layer(self, scan: NumericScan, k: int, index: int, at: Pass) -> Array:
        """A copy of v(k), the gradient with respect to the output of the layer at `index`, as layers have
        it."""
        shape = (at.batch, *at.architecture.shapes[index + 1])
        by_output = at.layers[index].buffer("output_gradient", shape)
        by_output.reshape(at.batch, -1)[...] = scan.vector(k, at.batch).T
        return by_output

    def scan(self, position: int, method: str, want_input: bool) -> NumericScan:
        """The scan of one run; another method's buffers are given back before it is set up."""
        schedule = self.plan.schedule(position, method)
        if want_input:
            schedule = with_input_gradient(schedule)
        if self._over is not None:  # messages have the layout of the scan
            schedule = replace(schedule, vjps=())
        present = self._scans[position].schedule if position in self._scans else None
        if present != schedule:
            if present is not None and present.name != schedule.name:
                self._scans.clear()
            self._scans.pop(position, None)
            chain, capacity = self.plan.chains[position], self.plan.batch_size
            arguments = self.device, self.dtype, chain, schedule, capacity, self._maps
            if self._over is None:
                self._scans[position] = NumericScan(*arguments)
            else:
                group, partition = self._over
                self._scans[position] = RankScan(group, chain.chain.owners(partition), *arguments)
        return self._scans[position]

    def fitting(self, architecture: Architecture) -> RunScans:
        """These scans, or new ones by the same plan where the architecture, its masks, are others now."""
        if architecture is self.architecture:
            return self
        return RunScans(architecture, self.plan, self.device, self.dtype, self._over)

    def choose(self, batch: int) -> str:
        """The method that "auto" selects for a batch."""
        if self._over is None:
            return "bp"
        if batch not in self._chosen:
            paths = self.plan.critical_paths(batch, self._over[1])
            self._chosen[batch] = min(paths, key=lambda name: paths[name])
        return self._chosen[batch]

    def describe(self) -> tuple[str, ...]:
        """The schedules that are set up, the first run's first."""
        lines = []
        for _, scan in sorted(self._scans.items()):
            counts = Counter(step.kind for step in scan.schedule.steps)
            crossed = f", {counts['vjp']} VJPs" if counts["vjp"] else ""
            counted = f"{counts['mv']} mv and {counts['mm']} mm{crossed} in {scan.schedule.depth} levels"
            lines.append(f"{scan.schedule.label}: {counted}")
        return tuple(lines)
