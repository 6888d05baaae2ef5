"""A plan: all that is worked out about a network's scans before the first value is computed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.budget import Size
from bppsa_cupy.plan.chain_plan import ChainPlan
from bppsa_cupy.plan.cost.model import CostModel, model_of
from bppsa_cupy.plan.cost.schedule_cost import preparation_seconds, schedule_cost, vjp_seconds
from bppsa_cupy.plan.schedule import Schedule

#: The schedules a plan may hold.
SCHEDULES = ("linear", "blelloch", "hybrid")


@dataclass(frozen=True, eq=False)
class Plan:
    """The schedules and products of a network's chains.

    network      its geometry, as JSON holds it
    fingerprint  SHA-256 of geometry and masks
    batch_size   samples the buffers will hold
    workers      the steps' workers are numbered for
    itemsize     bytes of a value the memory was reckoned with; the maps do not depend on it
    chains       one a run of layers, from the first run to the last
    left_out     schedules that did not fit the memory limit -> the bytes they would take

    Law: save and load give an equal plan. All chains have the same schedules.
    """

    network: Mapping[str, Any]
    fingerprint: str
    batch_size: int
    workers: int
    itemsize: int
    chains: tuple[ChainPlan, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    _predictions: dict[tuple[int, str], tuple[str, dict[str, float]]] = field(
        default_factory=dict, init=False, repr=False
    )

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

    def bytes(self, name: str, batch_size: int | None = None) -> int:
        """Bytes that a scan by schedule `name` takes with the gradient by the input: values for a batch,
        patterns and maps."""
        total = 0
        for index, chain in enumerate(self.chains):
            schedule = self.schedule(index, name)
            batch = self.batch_size if batch_size is None else batch_size
            total += Size(batch, self.itemsize).bytes(chain.counts, schedule)
        return total

    def choose(
        self, batch_size: int, device: str, refuse: Callable[[str], str] = lambda name: ""
    ) -> tuple[str, str]:
        """The method predicted to be the quickest for a batch, and why.

        One of the plan's schedules, or "bp" for a VJP a layer. `device` names the cost model; a
        device without one of its own is taken for the host. A device runs one step at a time, so a
        schedule's time is that of all its steps, with the Jacobians' values and the vectors that are moved
        before and behind it; it is predicted once for each batch size.

        refuse  says why the schedule of a name cannot run, "" where it can; asked of the quickest one first,
                and of others where that one is refused
        """
        key = batch_size, device
        if key not in self._predictions:
            self._predictions[key] = self._predict(batch_size, model_of(device))
        model, seconds = self._predictions[key]
        notes = []
        if batch_size > self.batch_size and self.schedules:
            notes.append(f"the plan holds batches up to {self.batch_size}, this one is {batch_size}")
        for best in sorted(seconds, key=lambda name: seconds[name]):
            refusal = "" if best == "bp" else refuse(best)
            if not refusal:
                break
            notes.append(refusal)
        predicted = ", ".join(f"{name} {1e3 * value:.3g} ms" for name, value in seconds.items())
        return best, "; ".join([*notes, f"predicted by the cost model {model}: {predicted}"])

    def _predict(self, batch_size: int, model: CostModel) -> tuple[str, dict[str, float]]:
        """The model's name, and seconds of "bp", and of the schedules where the plan holds the batch."""
        sizes = batch_size, self.itemsize, model
        seconds: dict[str, float] = {"bp": sum(vjp_seconds(chain.chain, *sizes) for chain in self.chains)}
        if batch_size <= self.batch_size:
            around = sum(preparation_seconds(chain.chain, *sizes) for chain in self.chains)
            for name in self.schedules:
                seconds[name] = around + sum(
                    schedule_cost(
                        chain.counts,
                        chain.schedules[name],
                        batch_size=batch_size,
                        itemsize=self.itemsize,
                        workers=1,
                        model=model,
                    ).seconds
                    for chain in self.chains
                )
        return model.name, seconds

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to an HDF5 file, whole or not at all. Raises PlanError where that fails."""
        from bppsa_cupy.plan.file.plan_file import save_plan

        save_plan(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan that `save` wrote, everything checked. Raises PlanError naming what is broken."""
        from bppsa_cupy.plan.file.plan_file import load_plan

        return load_plan(path)
