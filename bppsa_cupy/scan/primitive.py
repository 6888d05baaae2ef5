"""The scan as a primitive: any chain of CSR matrices, a gradient at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_flag, as_instance, as_list, is_one_of
from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device, get_device
from bppsa_cupy.errors import ArgumentError, PlanError, ShapeError
from bppsa_cupy.plan import SCHEDULES, Budget, Chain, Element, Plan, build_plan, with_input_gradient
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
    """Compute v(1), …, v(n + 1), where v(1) is the gradient and v(k + 1) = J_k v(k).

    This is the exclusive scan of [gradient, J_1, …, J_n] under A ⋄ B = B·A, without the leading identity.

    Parameters
    ----------
    gradient : array, (d,) or (d, B)
        The first vector v(1), or one vector per sample, float32 or float64.
    jacobians : sequence of sparse matrix, (Pattern, values) or JacobianRecord
        J_1, …, J_n. The shape of J_k is (d_{k+1}, d_k), with d_1 = d. Values have shape (nnz,) or (nnz, B)
        and are converted to the dtype of the gradient. Stored zeros stay in the pattern.
    method : {"blelloch", "linear", "hybrid"}, default: "blelloch"
        The schedule: Blelloch's parallel scan, the serial scan, or a mixture of both.
    plan : Plan, optional
        A plan that `plan_scan` made (``from bppsa_cupy.scan import plan_scan``), for any values with the same
        patterns. By default each call makes a plan.
    injections : sequence of array or None, optional
        Vectors e_1, …, e_n for an affine scan, v(k + 1) = J_k v(k) + e_k. e_k has the shape of v(k + 1).
    input_gradient : bool, default: True
        Whether to compute v(n + 1).
    levels : int or "auto", default: "auto"
        The number of parallel levels of "hybrid". Not used with `plan`.
    device : {"auto", "host", "cuda"}, default: "auto"
        The device that computes.

    Returns
    -------
    list of array
        v(1), …, v(n + 1), or up to v(n) without `input_gradient`. v(k) has shape (d_k,) or (d_k, B).

    Raises
    ------
    ShapeError, ArgumentError, PlanError, PlanMismatchError, DeviceError
        If an argument has the wrong shape or type or does not match the plan, or the device is missing.

    Notes
    -----
    This is equation 4 of Wang et al. 2020. All methods agree up to rounding.

    Examples
    --------
    >>> import numpy as np, scipy.sparse, bppsa_cupy as bp
    >>> jacobian = scipy.sparse.csr_array([[2.0, 0.0], [0.0, 3.0]])
    >>> [v.tolist() for v in bp.scan(np.ones(2), [jacobian, jacobian], device="host")]
    [[1.0, 1.0], [2.0, 3.0], [4.0, 9.0]]
    """
    target = get_device(device)
    start = target.asarray(gradient)
    if start.ndim not in (1, 2) or start.dtype not in (np.float32, np.float64):
        raise ShapeError(
            f"scan got a gradient of {start.dtype} and shape {tuple(start.shape)}: pass float32 or "
            "float64 of shape (d,) or (d, B)"
        )
    if not is_one_of(method, SCHEDULES):
        raise PlanError(f"scan got method={method!r}: pass one of {', '.join(SCHEDULES)}")
    input_gradient = as_flag("scan", "input_gradient", input_gradient)
    if plan is not None:
        as_instance("scan", "a plan", plan, Plan, "one of plan_scan", error=PlanError)
    matrices = as_list("scan", "jacobians", jacobians, "a list, J_1 first")
    operands = [_operand(target, k, jacobian) for k, jacobian in enumerate(matrices, 1)]
    if not operands:
        return [start]
    batch = start.shape[1] if start.ndim == 2 else 1
    chain = make_chain([(operand.pattern, not operand.batched) for operand in operands])
    injected_vectors: list[Array | None] | None = None
    if injections is not None:
        vectors = as_list("scan", "injections", injections, "a list of arrays, or None for each matrix")
        injected_vectors = [
            None if vector is None else _numbers(target, f"injection {k}", vector)
            for k, vector in enumerate(vectors, 1)
        ]
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
    numeric.run_batch(batch)
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
    """Plan `scan` for a chain of patterns.

    Parameters
    ----------
    chain : Chain
        ``make_chain([(pattern, is_shared), …])``. The patterns have the order of the argument `jacobians` of
        `scan`. is_shared says whether all samples share the values of the matrix.
    schedules : sequence of str
        The schedules to plan. All by default.
    levels : int or "auto"
        The up-sweep levels of "hybrid".
    workers : int, optional
        The number of workers; 1 by default.
    batch_size : int, default: 1
        The largest batch.
    memory_limit : int, optional
        Memory limit in bytes. Three quarters of the free memory by default.
    device : {"auto", "host", "cuda"}

    Returns
    -------
    Plan

    Raises
    ------
    PlanError
        If an argument is not valid.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> from bppsa_cupy.scan import make_chain, plan_scan
    >>> chain = make_chain([(bp.Pattern.diagonal(3), False)] * 4)
    >>> plan_scan(chain, ["linear", "blelloch"], device="host").schedules
    ('linear', 'blelloch')
    """
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
        raise ArgumentError(
            f"J_{k} is a {type(jacobian).__name__}: pass a SciPy or cupyx sparse matrix, a (Pattern, values) "
            "pair or a JacobianRecord"
        )
    return Matrix(matrix.pattern, _numbers(device, f"the values of J_{k}", matrix.values))


def _numbers(device: Device, argument: str, value: Any) -> Array:
    """Convert `value` to an array of the device. Raises ShapeError unless it holds real numbers."""
    try:
        array = device.asarray(value)
    except ShapeError as error:
        raise ShapeError(f"scan got {argument} that cannot be read: {error}") from error
    if array.dtype.kind == "c":
        raise ShapeError(f"scan got {argument} of {array.dtype}: pass real numbers, such as the real part")
    return array


def _check(
    chain: Chain, operands: list[Matrix], start: Array, batch: int, injections: list[Array | None] | None
) -> None:
    length = chain.elements[0].pattern.shape[1]
    if start.shape[0] != length:
        raise ShapeError(
            f"the gradient has {start.shape[0]} rows, but J_1 has {length} columns: both numbers must be "
            "equal"
        )
    for k, (pattern, values) in enumerate(operands, 1):
        fits = [(pattern.nnz,), (pattern.nnz, batch)]
        if tuple(values.shape) not in fits:
            raise ShapeError(f"J_{k} got values of shape {tuple(values.shape)}: pass {fits[0]} or {fits[1]}")
    if injections is None:
        return
    if len(injections) != len(operands):
        raise ShapeError(
            f"scan got {len(injections)} injections for {len(operands)} matrices: pass one array or None per "
            "matrix"
        )
    for k, (injected, (pattern, _)) in enumerate(zip(injections, operands, strict=True), 1):
        if injected is not None and tuple(injected.shape) != (pattern.shape[0], *start.shape[1:]):
            raise ShapeError(
                f"injection {k} has shape {tuple(injected.shape)}: pass the shape of v({k + 1}), "
                f"{(pattern.shape[0], *start.shape[1:])}"
            )
