"""Scans over the runs of an architecture whose layers lie on several ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.distributed.group import Group
from bppsa_cupy.errors import PlanError
from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.network.passes import SectionPass
from bppsa_cupy.network.run_scans import RunScans
from bppsa_cupy.network.sections import Run
from bppsa_cupy.plan import Partition, Plan, Schedule
from bppsa_cupy.scan.ranks import RankScan


class RankScans(RunScans):
    """One rank's part of a scan a run of layers.

    Raises what RunScans raises, PlanError for a plan of another partition, and DistributedError for plans
    that differ between ranks.
    """

    def __init__(
        self,
        group: Group,
        partition: Partition,
        architecture: Architecture,
        plan: Plan,
        device: Device,
        dtype: np.dtype,
    ) -> None:
        super().__init__(architecture, plan, device, dtype)
        if plan.partition is not None and plan.partition != partition:
            raise PlanError(
                f"the plan is for the partition {plan.partition.bounds}, the network lies by "
                f"{partition.bounds}: distribute(net, group, plan.partition), or plan it anew"
            )
        self.group, self.partition = group, partition
        self._chosen: dict[int, tuple[str, str]] = {}
        schedules = [chain.schedules[name].digest for name in plan.schedules for chain in plan.chains]
        group.agree(plan=(plan.fingerprint, plan.batch_size, plan.schedules, schedules))

    def fitting(self, architecture: Architecture) -> RunScans:
        if architecture is self.architecture:
            return self
        return RankScans(self.group, self.partition, architecture, self.plan, self.device, self.dtype)

    def schedule(self, position: int, method: str, want_input: bool = False) -> Schedule:
        """As of one device, with all elements filled: what travels is laid out as the scan has it."""
        return replace(super().schedule(position, method, want_input), vjps=())

    def choose(self, batch: int) -> tuple[str, str]:
        """The method of the plan with the fewest multiply-adds on the critical path over these ranks."""
        if batch not in self._chosen:
            paths = replace(self.plan, partition=self.partition).critical_paths(batch)
            counts = ", ".join(f"{name} {count:,}" for name, count in paths.items())
            reason = f"multiply-adds on the critical path: {counts}"
            self._chosen[batch] = min(paths, key=lambda name: paths[name]), reason
        return self._chosen[batch]

    def _set_up(self, position: int, schedule: Schedule) -> RankScan:
        chain = self.plan.chains[position]
        owners = chain.chain.owners(self.partition)
        capacity = self.plan.batch_size
        return RankScan(self.group, owners, self.device, self.dtype, chain, schedule, capacity, self._maps)

    def back_through(
        self, run: Run, at: SectionPass, gradient: Array | None, method: str, want_input: bool
    ) -> Array | None:
        """Go back through a run, with the other ranks, which call this too; through one inside of a residual
        block, whose layers are all this rank's, without them.

        gradient  by the run's output, on the rank of its last layer with a Jacobian

        The gradient by the run's input is returned on the rank of its first layer with a Jacobian.
        """
        scan = self.scan(run.position, method, want_input)
        assert isinstance(scan, RankScan)
        self.fill(scan, run, at)
        if scan.has_gradient:
            assert gradient is not None
            scan.vector(1, at.batch)[...] = gradient.reshape(at.batch, -1).T
        scan.run(at.batch)
        self.parameter_gradients(scan, run, at, scan.own)
        if want_input and len(run.elements) in scan.own:
            return self.input_gradient(scan, run, at)
        return None
