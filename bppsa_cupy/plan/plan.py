"""A plan: all that is worked out about a network's scans before the first value is computed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.errors import PlanError, PlanMismatchError
from bppsa_cupy.plan.chain_plan import ChainPlan
from bppsa_cupy.plan.compare import differences, fingerprint
from bppsa_cupy.plan.counts import run_schedule, vjp_multiply_adds
from bppsa_cupy.plan.file import read_plan, write_plan
from bppsa_cupy.plan.memory import Budget
from bppsa_cupy.plan.partition import Partition, RankSchedule, place
from bppsa_cupy.plan.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Plan:
    """The schedules and products of a network's chains.

    network      its geometry, as JSON holds it
    fingerprint  SHA-256 of geometry and masks
    batch_size   samples the buffers will hold
    workers      the steps' workers are numbered for
    itemsize     bytes of a value the memory was reckoned with; the maps do not depend on it
    chains       one a run of layers, from the first run to the last, those inside of residual blocks in place
    left_out     schedules that did not fit the memory limit -> the bytes they would take
    partition    which layers each rank owns, where the plan is for ranks; they are its workers then

    Law: save and load give an equal plan. All chains have the same schedules.
    """

    network: Mapping[str, Any]
    fingerprint: str
    batch_size: int
    workers: int
    itemsize: int
    chains: tuple[ChainPlan, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    partition: Partition | None = None

    @property
    def schedules(self) -> tuple[str, ...]:
        """The names of the schedules in this plan."""
        return tuple(self.chains[0].schedules) if self.chains else ()

    def schedule(self, chain_index: int, name: str) -> Schedule:
        """The schedule called `name` of one chain.

        Raises PlanError, naming the way to a plan that has it, where this one does not.
        """
        chain = self.chains[chain_index]
        if name in chain.schedules:
            return chain.schedules[name]
        cause = ""
        if name in self.left_out:
            cause = f" (it was left out: it takes {self.left_out[name]} bytes)"
        raise PlanError(
            f"the plan has no schedule {name!r}{cause}, it has {', '.join(chain.schedules) or 'none'}: "
            f"build it with --schedules {','.join((*chain.schedules, name))}, or net.plan(schedules=…)"
        )

    def placement(self, chain_index: int, name: str) -> RankSchedule:
        """Where the steps of a schedule of a plan over ranks run, and its messages. Raises PlanError."""
        if self.partition is None:
            raise PlanError("the plan is for one rank: build it with --ranks P, or net.plan(partition=…)")
        owners = self.chains[chain_index].chain.owners(self.partition)
        return place(self.schedule(chain_index, name), owners, self.partition.ranks)

    def check(self, geometry: Mapping[str, Any], what: str = "network") -> None:
        """Raise PlanMismatchError, naming what differs, unless the plan is of this geometry."""
        if self.fingerprint != fingerprint(geometry):
            found = differences(self.network, geometry) or ["its fingerprint is not that of what it says"]
            raise PlanMismatchError(f"the plan was made for another {what}: {'; '.join(found)}")

    def bytes(self, name: str, batch_size: int | None = None) -> int:
        """Bytes that a scan by schedule `name` takes with the gradient by the input: values for a batch,
        patterns and maps; over ranks on the fullest one of each chain."""
        batch = self.batch_size if batch_size is None else batch_size
        batch = as_integer("plan", "batch_size", batch, 1, error=PlanError)
        return sum(
            self._budget(chain, batch).bytes(chain.sizes, self.schedule(index, name))
            for index, chain in enumerate(self.chains)
        )

    def critical_paths(self, batch_size: int) -> dict[str, int]:
        """Multiply-adds on the critical path of each method for a batch: "bp" runs one VJP after another;
        the plan's schedules run on its workers or ranks, and are left out for a batch beyond the plan's."""
        batch_size = as_integer("plan", "batch_size", batch_size, 1, error=PlanError)
        both = [(chain, self._budget(chain, batch_size, self.workers)) for chain in self.chains]
        found = {"bp": sum(vjp_multiply_adds(chain.chain, budget) for chain, budget in both)}
        for name in self.schedules if batch_size <= self.batch_size else ():
            found[name] = sum(
                run_schedule(chain.sizes, chain.schedules[name], budget)[1] for chain, budget in both
            )
        return found

    def _budget(self, chain: ChainPlan, batch_size: int, workers: int = 1) -> Budget:
        """What a scan of one of the chains is run for: the ranks, or workers of one device."""
        if self.partition is None:
            return Budget(batch_size, self.itemsize, workers)
        owners = chain.chain.owners(self.partition)
        return Budget(batch_size, self.itemsize, self.partition.ranks, owners=owners)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to an HDF5 file, whole or not at all. Raises PlanError where that fails."""
        write_plan(path, vars(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan that `save` wrote, everything checked.

        Raises PlanError naming what is broken.
        """
        return cls(**read_plan(path))
