"""The scan as a primitive: any chain of CSR matrices, a gradient at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_flag, as_instance, as_list, is_one_of
from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device, get_device
from bppsa_cupy.errors import PlanError, ShapeError
from bppsa_cupy.plan import (
    SCHEDULES,
    Budget,
    Chain,
    Element,
    Plan,
    build_plan,
    with_input_gradient,
)
from bppsa_cupy.scan.launches import Matrix, matrix_of
from bppsa_cupy.scan.numeric import NumericScan


def scan(
    gradient: Any,
    jacobians: Sequence[Any],
    method: str = "blelloch",
    plan: Plan | None = None,
    injections: Sequence[Any] | None = None,
    *,
    input_gradient: bool = True,
    levels: int | str = "auto",
    device: str | Device = "auto",
) -> list[Array]:
    """The exclusive scan of [gradient, J_1, …, J_n] under A ⋄ B = B·A (equation 4), without its identity.

    gradient    v(1): (d,) or, for a batch, (d, B), float32 or float64
    jacobians   J_1 … J_n in the scan's order, J_1 next to the gradient: sparse matrices of SciPy or cupyx,
                (Pattern, values) pairs or JacobianRecords, J_k of shape (d_{k+1}, d_k) with d_1 = d; values
                are (nnz,) for every sample, or (nnz, B), real numbers of any type, which are converted to
                the gradient's. The values' stored zeros stay in the pattern.
    method      "linear", "blelloch" or "hybrid" (with `levels`)
    plan        of `plan_scan`, to use again for other values of the same patterns; made here without it
    injections  e_1 … e_n, each of v(k + 1)'s shape or None: v(k + 1) = J_k v(k) + e_k, an affine scan
    input_gradient  whether v(n + 1) is computed

    Returns [v(1), …, v(n), v(n + 1)] in the gradient's layout, on the device; v(1) is the gradient.
    Law: every method gives the same vectors up to rounding. Raises ShapeError, PlanMismatchError,
    PlanError, DeviceError.
    """
    target = get_device(device)
    start = target.asarray(gradient)
    if start.ndim not in (1, 2) or start.dtype not in (np.float32, np.float64):
        raise ShapeError(
            f"scan got a gradient of {start.dtype} and shape {tuple(start.shape)}: it takes float32 or "
            "float64 of shape (d,) or (d, B)"
        )
    if not is_one_of(method, SCHEDULES):
        raise PlanError(f"method {method!r} was asked for: a scan takes {', '.join(SCHEDULES)}")
    input_gradient = as_flag("scan", "input_gradient", input_gradient)
    if plan is not None:
        as_instance("scan", "a plan", plan, Plan, "one of plan_scan", error=PlanError)
    given = as_list("scan", "jacobians", jacobians, "a list, J_1 first")
    operands = [_operand(target, k, jacobian) for k, jacobian in enumerate(given, 1)]
    if not operands:
        return [start]
    batch = start.shape[1] if start.ndim == 2 else 1
    chain = make_chain([(operand.pattern, not operand.batched) for operand in operands])
    injected_vectors = _injected(target, injections)
    _check(chain, operands, start, batch, injected_vectors)
    if plan is None:
        plan = plan_scan(chain, (method,), levels=levels, batch_size=batch, device=target)
    plan.check(_describe(chain), "chain")
    schedule = plan.schedule(0, method)
    if input_gradient:
        schedule = with_input_gradient(schedule)
    affine = injected_vectors is not None
    numeric = NumericScan(target, start.dtype, plan.chains[0], schedule, plan.batch_size, affine=affine)
    for k in numeric.elements_read:
        numeric.element(k, batch)[...] = target.asarray(operands[k - 1].values, dtype=start.dtype)
    numeric.vector(1, batch)[...] = start.reshape(-1, batch)
    for k, injected in enumerate(injected_vectors or (), 1):
        numeric.injection(k, batch)[...] = (
            0 if injected is None else target.asarray(injected, dtype=start.dtype).reshape(-1, batch)
        )
    numeric.run(batch)
    count = len(operands) + (1 if input_gradient else 0)
    results = [numeric.vector(k, batch) for k in range(1, count + 1)]
    return results if start.ndim == 2 else [v.reshape(-1) for v in results]


def make_chain(matrices: Sequence[tuple[Pattern, bool]]) -> Chain:
    """The chain of (pattern, shared) pairs in the scan's order. Raises ShapeError where sizes do not fit."""
    return Chain(tuple(Element(f"J_{k + 1}", *matrix, None, k) for k, matrix in enumerate(matrices)))


def plan_scan(
    chain: Chain,
    schedules: Sequence[str] = SCHEDULES,
    *,
    levels: int | str = "auto",
    workers: int | None = None,
    batch_size: int = 1,
    memory_limit: int | None = None,
    device: str | Device = "auto",
) -> Plan:
    """A plan for `scan` over a chain of `make_chain`, for batches up to `batch_size`. Raises PlanError."""
    as_instance("plan_scan", "chain", chain, Chain, "one of make_chain", error=PlanError)
    limit = get_device(device).free_memory() * 3 // 4 if memory_limit is None else memory_limit
    budget = Budget(batch_size, 8, 1 if workers is None else workers, limit)
    return build_plan((chain,), _describe(chain), budget, schedules=schedules, levels=levels)


def _describe(chain: Chain) -> dict[str, Any]:
    return {
        "layers": [
            {"type": "matrix", "pattern": element.pattern.digest, "shared": element.shared}
            for element in chain.elements
        ]
    }


def _operand(device: Device, k: int, jacobian: Any) -> Matrix:
    """Pattern and values of J_k, whatever it came as; a SciPy matrix's values serve every sample."""
    matrix = matrix_of(jacobian)
    if matrix is None:
        raise ShapeError(
            f"J_{k} is a {type(jacobian).__name__}: scan takes sparse matrices of SciPy and cupyx, (Pattern, "
            "values) pairs and JacobianRecords"
        )
    return Matrix(matrix.pattern, _numbers(device, f"the values of J_{k}", matrix.values))


def _injected(device: Device, injections: Sequence[Any] | None) -> list[Array | None] | None:
    """The injected vectors as arrays."""
    if injections is None:
        return None
    given = as_list("scan", "injections", injections, "a list of arrays, or None for each matrix")
    return [
        None if injected is None else _numbers(device, f"injection {k}", injected)
        for k, injected in enumerate(given, 1)
    ]


def _numbers(device: Device, what: str, given: Any) -> Array:
    """`given` as an array of the device. Raises ShapeError, naming `what`, unless it holds real numbers."""
    try:
        array = device.asarray(given)
    except ShapeError as cause:
        raise ShapeError(f"scan got {what} that cannot be taken: {cause}") from cause
    if array.dtype.kind == "c":
        raise ShapeError(f"scan got {what} of {array.dtype}: it takes real numbers; give the real part")
    return array


def _check(
    chain: Chain, operands: list[Matrix], start: Array, batch: int, injections: list[Array | None] | None
) -> None:
    length = chain.elements[0].pattern.shape[1]
    if start.shape[0] != length:
        raise ShapeError(
            f"the gradient has {start.shape[0]} rows and J_1 {length} columns: they must be equal"
        )
    for k, (pattern, values) in enumerate(operands, 1):
        fits = [(pattern.nnz,), (pattern.nnz, batch)]
        if tuple(values.shape) not in fits:
            raise ShapeError(
                f"J_{k} got values of shape {tuple(values.shape)}: its pattern takes {fits[0]} or {fits[1]}"
            )
    if injections is None:
        return
    if len(injections) != len(operands):
        raise ShapeError(f"{len(injections)} injections for {len(operands)} matrices: give one each, or None")
    for k, (injected, (pattern, _)) in enumerate(zip(injections, operands, strict=True), 1):
        if injected is not None and tuple(injected.shape) != (pattern.shape[0], *start.shape[1:]):
            raise ShapeError(
                f"injection {k} has shape {tuple(injected.shape)}: v({k + 1}) has "
                f"{(pattern.shape[0], *start.shape[1:])}"
            )
