"""The numeric scan against dense NumPy products, for every schedule, length and kind of product."""

import numpy as np
import pytest
import scipy.sparse
import torch
from counting import CountingDevice
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import some
from plan_cases import small_network
from scan_cases import METHODS, random_chain, reference

import bppsa_cupy as bp
from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import get_device
from bppsa_cupy.devices.base import LARGE
from bppsa_cupy.devices.host import HostDevice
from bppsa_cupy.plan import Budget, with_input_gradient
from bppsa_cupy.plan.schedule import linear
from bppsa_cupy.plan.sizes import ChainSizes
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.scan import NumericScan, make_chain, plan_scan
from bppsa_cupy.scan.launches import IndexMaps, Matrix, bind_spmv


def assert_vectors(got, expected, tolerance=1e-12):
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        scale = max(1.0, float(np.abs(theirs).max(initial=0)))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("n", some(*range(18), 31, 32, 33, long=[*range(18, 31), *range(34, 41)]))
def test_every_schedule_equals_the_serial_products(n):
    rng = np.random.default_rng(n)
    batch = int(rng.integers(1, 4))
    operands = random_chain(rng, n, batch)
    width = operands[0][0].shape[1] if operands else 3
    gradient = rng.standard_normal((width, batch))
    expected = reference(gradient, operands)
    for method in METHODS:
        assert_vectors(bp.scan(gradient, operands, method), expected)
    for levels in range(max(n.bit_length(), 1)):
        assert_vectors(bp.scan(gradient, operands, "hybrid", levels=levels), expected)


@settings(max_examples=15)
@given(st.integers(1, 12), st.integers(1, 3), st.integers(0, 2**32))
def test_affine_scans_equal_the_serial_recurrence(n, batch, seed):
    rng = np.random.default_rng(seed)
    operands = random_chain(rng, n, batch)
    gradient = rng.standard_normal((operands[0][0].shape[1], batch))
    injections = [
        rng.standard_normal((pattern.shape[0], batch)) if rng.integers(3) else None for pattern, _ in operands
    ]
    expected = reference(gradient, operands, injections)
    for method in METHODS:
        assert_vectors(bp.scan(gradient, operands, method, injections=injections), expected)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 12])
def test_every_device_and_dtype(device, dtype, n):
    rng = np.random.default_rng(n)
    operands = [(p, v.astype(dtype)) for p, v in random_chain(rng, n, 3)]
    gradient = rng.standard_normal((operands[0][0].shape[1], 3)).astype(dtype)
    expected = reference(gradient.astype(np.float64), operands)
    for method in METHODS:
        got = [device.to_host(v) for v in bp.scan(gradient, operands, method, device=device)]
        assert all(vector.dtype == dtype for vector in got)
        assert_vectors(got, expected, 1e-12 if dtype == np.float64 else 1e-4)


@pytest.mark.parametrize("kind", ["sparse", "diagonal", "dense", "selection"])
@pytest.mark.parametrize("batch", [1, 5])
def test_every_kind_of_product(device, kind, batch):
    rng = np.random.default_rng(5)
    operands = random_chain(rng, 9, batch, [kind], sizes=(20, 30))
    gradient = rng.standard_normal((operands[0][0].shape[1], batch))
    got = bp.scan(gradient, operands, "blelloch", device=device)
    assert_vectors([device.to_host(v) for v in got], reference(gradient, operands))
    launched = {name for name in device.launched if name.startswith("product_")}
    assert launched, "no product was computed"


def test_no_matrix_gives_the_gradient_alone(rng):
    gradient = rng.standard_normal((3, 2))
    (only,) = bp.scan(gradient, [])
    assert np.array_equal(only, gradient)


def test_a_plan_serves_other_values_and_smaller_batches(rng):
    operands = random_chain(rng, 9, 4)
    plan = plan_scan(make_chain([(p, v.ndim == 1) for p, v in operands]), batch_size=4)
    for batch in (4, 1, 3):
        fresh = [(p, rng.standard_normal((p.nnz,) if v.ndim == 1 else (p.nnz, batch))) for p, v in operands]
        gradient = rng.standard_normal((operands[0][0].shape[1], batch))
        for method in METHODS:
            got = bp.scan(gradient, fresh, method, plan=plan)
            assert_vectors(got, reference(gradient, fresh))
    with pytest.raises(bp.PlanError, match="the batch has 5 samples, but the plan is for at most 4"):
        wide = [(p, rng.standard_normal((p.nnz,) if v.ndim == 1 else (p.nnz, 5))) for p, v in operands]
        bp.scan(rng.standard_normal((operands[0][0].shape[1], 5)), wide, plan=plan)


def test_a_steady_run_allocates_nothing(device, rng):
    operands = random_chain(rng, 11, 2)
    chain = make_chain([(p, v.ndim == 1) for p, v in operands])
    plan = plan_scan(chain, batch_size=2, device=device)
    schedule = with_input_gradient(plan.schedule(0, "blelloch"))
    scan = NumericScan(device, np.dtype(np.float64), plan.chains[0], schedule, 2)

    def step():
        for k in scan.elements_read:
            scan.element(k, 2)[...] = device.asarray(operands[k - 1][1])
        scan.vector(1, 2)[...] = 1
        scan.run_batch(2)
        return [np.array(device.to_host(scan.vector(k, 2))) for k in range(1, len(operands) + 2)]

    first = step()
    allocated, launched = device.allocated, sum(device.launched.values())
    second = step()
    assert device.allocated == allocated
    assert sum(device.launched.values()) - launched == len(schedule.steps)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_positions_beyond_two_to_the_31_are_reached(tmp_path):
    """A matrix of one entry reads x beyond element 2³¹; the file behind x is sparse and takes no disk."""
    device, batch, columns = HostDevice(), 2**20, 2**11 + 5
    assert columns * batch > 2**31
    x = np.memmap(tmp_path / "x", np.float32, "w+", shape=(columns, batch))
    x[-1, -3:] = 1, 2, 3
    pattern = Pattern((1, columns), [0, 1], [columns - 1])
    assert pattern.indices.dtype == np.int32
    y = np.zeros((1, batch), np.float32)
    bind_spmv(device, IndexMaps(device), Matrix(pattern, np.array([2], np.float32)), x, None, y)()
    assert y[0, -3:].tolist() == [2, 4, 6] and not y[0, :-3].any()


def test_values_and_injections_come_as_lists_and_by_dlpack():
    pattern, expected = Pattern.diagonal(2), [1, 2]
    for values, injected in (([1, 2], [3.0, 4.0]), (torch.tensor([1, 2]), torch.tensor([3.0, 4.0]))):
        result = bp.scan([1.0, 1.0], [(pattern, values)], injections=[injected], device="host")
        np.testing.assert_array_equal(result[1], np.add(expected, [3, 4]))


@pytest.mark.parametrize("make", [scipy.sparse.csr_array, scipy.sparse.csc_array, scipy.sparse.coo_array])
def test_unsorted_matrices_with_duplicates_are_taken_and_stay_as_they_are(make):
    """Of CSR unsorted, with one position twice; and of other formats, which are brought to CSR."""
    unsorted = scipy.sparse.csr_array((np.array([1.0, 2, 3, 4]), np.array([2, 0, 2, 1]), [0, 3, 4]), (2, 3))
    matrix = make(unsorted)
    before = matrix.data.copy(), matrix.nnz
    _, result = bp.scan(np.array([1.0, 10, 100]), [matrix], device="host")
    np.testing.assert_array_equal(result, [402, 40])
    assert matrix.nnz == before[1]
    np.testing.assert_array_equal(matrix.data, before[0])


def test_a_plan_of_another_chain_is_refused(rng):
    dense, diagonal = Pattern.dense(3, 3), Pattern.diagonal(3)
    plan = plan_scan(make_chain([(dense, True)]))
    with pytest.raises(bp.PlanMismatchError, match="the plan was made for another chain"):
        bp.scan(np.zeros(3), [(diagonal, np.ones(3))], plan=plan)


@pytest.mark.parametrize("batch", [16, 64])
def test_outputs_that_bypass_the_caches(dtype, rng, batch):
    device = get_device("host")
    entries = 2 * LARGE // (batch * np.dtype(dtype).itemsize)
    a, b = rng.standard_normal(entries).astype(dtype), rng.standard_normal((7, batch)).astype(dtype)
    indices = rng.integers(0, 7, entries, dtype=np.int32)
    c = device.zeros((entries, batch), dtype)
    assert c.ctypes.data % 64 == 0
    device.launch(
        KERNELS["product_scale_columns"], device.upload_index(indices), a, b, c, 7, entries, batch, 0, 1
    )
    for part in range(0, entries, entries // 3):
        np.testing.assert_array_equal(
            c[part : part + 99], a[part : part + 99, None] * b[indices[part : part + 99]]
        )


# ---- memory ----


def test_a_plan_for_scans_is_held_to_its_limit_and_to_three_quarters_of_what_is_free():
    """Vectors and values are counted in float64."""
    chain, batch = small_network(), 5
    needed = Budget(batch, 8).bytes(ChainSizes(chain), linear(len(chain)))
    for free in (needed, 10 * needed):
        options = {"batch_size": batch, "device": CountingDevice(free)}
        assert plan_scan(chain, ("linear",), memory_limit=needed, **options)
        with pytest.raises(bp.PlanError, match=f"{needed} bytes"):
            plan_scan(chain, ("linear",), memory_limit=needed - 1, **options)
    enough = -(-4 * needed // 3)
    assert plan_scan(chain, ("linear",), batch_size=batch, device=CountingDevice(enough))
    with pytest.raises(bp.PlanError, match=f"{needed} bytes"):
        plan_scan(chain, ("linear",), batch_size=batch, device=CountingDevice(enough - 2))
