"""A plan: all that is worked out about a network's scans before the first value is computed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bppsa_cupy.arguments import as_flag, as_integer
from bppsa_cupy.errors import PlanError, PlanMismatchError
from bppsa_cupy.plan.budget import Budget
from bppsa_cupy.plan.chain_plan import ChainPlan
from bppsa_cupy.plan.compare import differences, fingerprint
from bppsa_cupy.plan.cost import cost_model_of, scan_seconds, vjp_seconds
from bppsa_cupy.plan.cost_model import IDEAL, CostModel
from bppsa_cupy.plan.file import read_outline, read_plan, write_plan
from bppsa_cupy.plan.partition import Partition, RankSchedule, place
from bppsa_cupy.plan.schedule import Schedule


@dataclass(frozen=True)
class Prediction:
    """What methods are predicted to take.

    model    the cost model's label
    seconds  of each method by name
    """

    model: str
    seconds: Mapping[str, float]


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

    def predict(self, batch_size: int, device: str) -> Prediction:
        """What methods will take for a batch: "bp" for a VJP a layer, and this plan's schedules where it
        holds the batch.

        `device` names the cost model; a device without one of its own is taken for the host. A device runs
        one step at a time, so a schedule's time is that of all its steps, with the Jacobians' values and the
        vectors that are moved before and after it. Over ranks each runs its own steps and fills its own
        Jacobians, and messages take the model's `Link`; the one that is ready last counts.
        """
        batch_size = as_integer("plan", "batch_size", batch_size, 1, error=PlanError)
        model = cost_model_of(device)
        budgets = [self._budget(chain, batch_size, model) for chain in self.chains]
        both = list(zip(self.chains, budgets, strict=True))
        seconds: dict[str, float] = {"bp": sum(vjp_seconds(chain.chain, budget) for chain, budget in both)}
        if batch_size <= self.batch_size:
            for name in self.schedules:
                seconds[name] = sum(
                    scan_seconds(chain.sizes, chain.schedules[name], budget) for chain, budget in both
                )
        return Prediction(model.label, seconds)

    def _budget(self, chain: ChainPlan, batch_size: int, model: CostModel = IDEAL) -> Budget:
        """What a scan of one of the chains is run for: the ranks, or one device."""
        if self.partition is None:
            return Budget(batch_size, self.itemsize, model=model)
        owners = chain.chain.owners(self.partition)
        return Budget(batch_size, self.itemsize, self.partition.ranks, model, owners=owners)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to an HDF5 file, whole or not at all. Raises PlanError where that fails."""
        write_plan(path, vars(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan that `save` wrote, everything checked.

        Raises PlanError naming what is broken.
        """
        return cls(**read_plan(path))

    @classmethod
    def outline(cls, path: str | os.PathLike[str], *, verify: bool = True) -> Plan:
        """Read what a saved plan holds, patterns and products by their sizes alone.

        verify   compare the SHA-256, which takes every byte
        Raises PlanError as `load` does, but for what the arrays alone tell.
        """
        verify = as_flag("Plan.outline", "verify", verify, error=PlanError)
        return cls(**read_outline(path, verify=verify))
