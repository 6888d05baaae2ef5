"""Patterns and products of a plan file by their sizes: what can be told without reading an array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import h5py

from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.file.fields import number, product_patterns, text
from bppsa_cupy.system.hdf5 import array_size


@dataclass(frozen=True)
class PatternOutline:
    """A pattern without its indices; has what a `Pattern` tells of itself by numbers."""

    shape: tuple[int, int]
    nnz: int
    digest: str

    @property
    def sparsity(self) -> float:
        """Fraction of guaranteed zeros over all elements; 0 for an empty matrix."""
        size = self.shape[0] * self.shape[1]
        return 1.0 - self.nnz / size if size else 0.0


@dataclass(frozen=True)
class ProductOutline:
    """A product without its maps."""

    a: PatternOutline
    b: PatternOutline
    pattern: PatternOutline
    kind: str
    multiply_adds: int
    map_bytes: int


def read_pattern_outlines(groups: Sequence[tuple[str, h5py.Group]]) -> dict[str, PatternOutline]:
    """The sizes of patterns by digest; `groups` are /patterns/<digest> of a plan file. Raises PlanError."""
    return {digest: _read_pattern_outline(group) for digest, group in groups}


def _read_pattern_outline(group: h5py.Group) -> PatternOutline:
    shape = number(group, "rows"), number(group, "columns")
    pointers, nnz = (array_size(group, name, error=PlanError)[0] for name in ("indptr", "indices"))
    if min(shape) < 0 or pointers != shape[0] + 1:
        raise PlanError(f"{group.file.filename}: {group.name}: {pointers} row pointers for {shape[0]} rows")
    return PatternOutline(shape, nnz, group.name.rpartition("/")[2])


def read_product_outline(group: h5py.Group, patterns: Mapping[str, PatternOutline]) -> ProductOutline:
    """The sizes of the product in `group`, /products/<a>_<b> of a plan file. Raises PlanError."""
    return ProductOutline(
        *product_patterns(group, patterns),
        text(group, "kind"),
        number(group, "multiply_adds"),
        sum(array_size(group, name, error=PlanError)[1] for name in group),
    )
