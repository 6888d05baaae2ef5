"""The backward pass: a VJP a layer, or a scan over each run of layers with CSR Jacobians."""

from __future__ import annotations

import weakref
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bppsa_cupy.devices import Array
from bppsa_cupy.errors import PlanError
from bppsa_cupy.layers import RecurrentContext
from bppsa_cupy.network.passes import Pass
from bppsa_cupy.plan import Plan, Schedule, with_input_gradient
from bppsa_cupy.plan.budget import Size
from bppsa_cupy.scan.maps import IndexMaps
from bppsa_cupy.scan.numeric import NumericScan

if TYPE_CHECKING:
    from bppsa_cupy.network.sequential import Sequential

METHODS = ("auto", "bp", "linear", "blelloch", "hybrid")


@dataclass(frozen=True)
class BackwardReport:
    """What a backward pass ran.

    method     "bp", "linear", "blelloch" or "hybrid"
    requested  the method that was asked for
    reason     why this one
    schedules  one a run of layers, the first run's first, e.g. "hybrid of 2 levels: 7 mv and 3 mm in 6
               levels"; empty for bp
    backward_ways  one a direction of a recurrent layer, e.g. "0 RNN l0: chunked, 300 chunks of 100
               (predicted 0.31 ms, 3 ms serially; the quickest predicted on cuda)"
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
    """The backward passes of one network: its runs, the plan in use, and the scan that is set up."""

    def __init__(self, network: Sequential) -> None:
        self.network = network
        self.runs = network.runs
        self.plan: Plan | None = None
        self._fits = True
        self._maps = IndexMaps(network.device)
        self._scans: dict[int, NumericScan] = {}
        self._needed: dict[tuple[str, tuple[tuple[int, bool], ...]], int] = {}
        self._last: weakref.ref[Pass] | None = None

    def use(self, plan: Plan) -> None:
        """Scan by `plan`, which fits the network, from now on."""
        self.plan, self._fits = plan, True
        self._maps = IndexMaps(self.network.device)
        self._scans.clear()
        self._needed.clear()

    def masks_changed(self) -> None:
        """The network's masks are others now: a plan in use is held against them before it is used again."""
        self._fits = False
        self._scans.clear()

    def run(
        self, current: Pass, gradient: Array, method: str, input_gradient: bool
    ) -> tuple[Array | None, BackwardReport]:
        """Fill the network's gradients; the gradient by the input where asked for, and the report."""
        requested, reason = method, "as asked for"
        if not self._fits and self.plan is not None and method != "bp":
            self.network.check_plan(self.plan)
            self._fits = True
        if method == "auto":
            method, reason = self._choose(current.batch, input_gradient)
        launched = self.network.device.launched
        before = launched.copy()
        self._forget_gradients()
        self._last = weakref.ref(current)
        for ctx in current.layers:
            if isinstance(ctx, RecurrentContext):
                ctx.method, ctx.backward_ways = requested, ()
        if method == "bp":
            result = self._by_vjp(current, gradient, range(len(self.network.layers)), input_gradient)
            schedules: tuple[str, ...] = ()
        else:
            result = self._by_scan(current, gradient, method, input_gradient)
            schedules = tuple(self._describe(scan.schedule) for _, scan in sorted(self._scans.items()))
        report = BackwardReport(
            method=method,
            requested=requested,
            reason=reason,
            schedules=schedules,
            launches=dict(launched - Counter(before)),
            device=self.network.device.name,
            backward_ways=tuple(
                f"{index} {type(self.network.layers[index]).__name__} {line}"
                for index, ctx in enumerate(current.layers)
                if isinstance(ctx, RecurrentContext)
                for line in ctx.backward_ways
            ),
        )
        return result, report

    def _forget_gradients(self) -> None:
        """Drop the last pass's gradients by output: the buffers they view are about to be written over."""
        last = self._last() if self._last is not None else None
        if last is not None:
            last.output_gradients.clear()

    def _choose(self, batch: int, input_gradient: bool) -> tuple[str, str]:
        """The method the cost model predicts to be the quickest of those there is memory for, and why."""
        if self.plan is None:
            return "bp", "no plan is in use"
        return self.plan.choose(
            batch, self.network.device.name, lambda name: self._lacks_memory(name, input_gradient)
        )

    def _lacks_memory(self, name: str, input_gradient: bool) -> str:
        """Why schedule `name` cannot run by the memory there is now; "" where it can.

        What the scans in use hold is given back before others are set up, and so is free.
        """
        plan, network = self.plan, self.network
        assert plan is not None
        wanted: dict[int, bool] = {}  # the runs that are scanned, and whether their input gradient is
        for position in reversed(range(len(self.runs))):
            wanted[position] = input_gradient or self._trained_before(self.runs[position].start)
            if not wanted[position]:
                break
        if all(
            position in self._scans
            and self._scans[position].schedule.name == name
            and self._scans[position].schedule.computes_input_gradient >= by_input
            for position, by_input in wanted.items()
        ):
            return ""
        key = name, tuple(wanted.items())
        if key not in self._needed:
            self._needed[key] = sum(
                Size(
                    plan.batch_size,
                    network.dtype.itemsize,
                    input_gradient=by_input,
                    indices=self._maps.copies,
                ).bytes(plan.chains[position].counts, plan.schedule(position, name))
                for position, by_input in wanted.items()
            )
        held = sum(scan.memory.total_bytes for scan in self._scans.values())
        free = network.device.free_memory() + self._maps.bytes + held
        if self._needed[key] <= free:
            return ""
        return f"{name} takes {self._needed[key]} bytes, {network.device.name} has {free}"

    # ---- back-propagation ----

    def _by_vjp(self, current: Pass, gradient: Array, layers: range, input_gradient: bool) -> Array | None:
        """Equation 3, a layer at a time, over `layers`; the gradient by the first one's input."""
        network = self.network
        for index in reversed(layers):
            current.output_gradients[index] = gradient
            wanted = input_gradient or self._trained_before(index)
            gradient = network.layers[index].backward(current.layers[index], gradient, wanted)
            if gradient is None:
                return None
        return gradient

    def _trained_before(self, index: int) -> bool:
        """Whether a layer before `index` has parameters, and so needs the gradient by its output."""
        return any(layer.parameter_shapes() for layer in self.network.layers[:index])

    # ---- scan ----

    def _by_scan(self, current: Pass, gradient: Array, method: str, input_gradient: bool) -> Array | None:
        """Scans over the runs, VJPs over what lies between them, from the last layer to the first."""
        stop = len(self.network.layers)
        result: Array | None = gradient
        for position in reversed(range(len(self.runs))):
            run = self.runs[position]
            result = self._by_vjp(current, result, range(run.stop, stop), True)
            wanted = input_gradient or self._trained_before(run.start)
            result = self._scan_run(position, current, result, method, wanted)
            if result is None:
                return None
            stop = run.start
        return self._by_vjp(current, result, range(stop), input_gradient)

    def _scan_run(
        self, position: int, current: Pass, gradient: Array, method: str, wanted: bool
    ) -> Array | None:
        """One run of layers: fill, scan, parameter gradients (equation 2).

        A run of one element has nothing to scan: without a plan it is crossed by its VJP.
        """
        run, batch = self.runs[position], current.batch
        if self.plan is None and len(run.elements) == 1:
            return self._by_vjp(current, gradient, range(run.start, run.stop), wanted)
        network = self.network
        scan = self._scan(position, method, wanted)
        for k in scan.elements_read:
            index = run.elements[k - 1]
            state = current.layers[index]
            network.jacobians[index].fill(
                network.device, state.parameters, state.saved, scan.element(k, batch)
            )
        scan.vector(1, batch)[...] = gradient.reshape(batch, -1).T
        scan.run(batch)
        for k, index in enumerate(run.elements, 1):
            current.output_gradients[index] = scan.vector(k, batch).T
            if not network.layers[index].parameter_shapes():
                continue
            state = current.layers[index]
            shape = (batch, *network.shapes[index + 1])
            by_output = state.buffer("output_gradient", shape)
            by_output.reshape(batch, -1)[...] = scan.vector(k, batch).T
            network.layers[index].parameter_gradients(state, by_output)
        if not wanted:
            return None
        state = current.layers[run.start]
        result = state.buffer("input_gradient", (batch, *network.shapes[run.start]))
        result.reshape(batch, -1)[...] = scan.vector(len(run.elements) + 1, batch).T
        return result

    def _scan(self, position: int, method: str, input_gradient: bool) -> NumericScan:
        """The scan of one run, set up once; another method's buffers are given back first."""
        plan = self.plan
        if plan is None:
            raise PlanError(
                f"method {method!r} scans by a plan and none is in use: net.use(net.plan()), or "
                "net.use(Plan.load(path)) with a file of bppsa-plan build"
            )
        schedule = plan.schedule(position, method)
        if input_gradient:
            schedule = with_input_gradient(schedule)
        present = self._scans[position].schedule if position in self._scans else None
        if present != schedule:
            if present is not None and present.name != schedule.name:
                self._scans.clear()
            self._scans.pop(position, None)
            self._scans[position] = NumericScan(
                self.network.device,
                self.network.dtype,
                plan.chains[position],
                schedule,
                plan.batch_size,
                self._maps,
            )
        return self._scans[position]

    @staticmethod
    def _describe(schedule: Schedule) -> str:
        counts = Counter(step.kind for step in schedule.steps)
        return f"{schedule.label}: {counts['mv']} mv and {counts['mm']} mm in {schedule.depth} levels"
