"""How often threads of a warp meet in a bank of shared memory, counted on the emulator by their addresses."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from emulator.device import RaceDevice, load
from emulator.text_kernel import array_out, text_kernel
from executors import make_device
from kernel_cases import arguments
from kernel_cases_scan import product_of, random_pattern
from tolerances import assert_close

from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import Kernel, Variant

pytestmark = pytest.mark.long


@pytest.fixture
def racing() -> RaceDevice:
    make_device("emulated")  # skips where there is no g++
    return RaceDevice(seeds=())


def counted(racing: RaceDevice, kernel: Kernel, array: str, real: str, *given: object) -> tuple[int, int]:
    """Accesses of phases to this array of shared memory in one launch, and their turns, in one order."""
    library = load(kernel, Variant(real), racing.architecture, 0, True)
    racing.orders = racing.orders[:1]
    library.count_banks()
    racing.launch(kernel, *given)
    found = library.banks(array)
    library.count_banks(False)
    return found


@pytest.mark.parametrize(
    "kind, place, phases, turns",
    [
        ("int", "i", 1, 1), ("int", "i * 2", 1, 2), ("int", "i * 32", 1, 32), ("int", "i * 33", 1, 1),
        ("int", "i / 32", 1, 1), ("int", "i % 4 * 32", 1, 4), ("double", "i", 2, 2),
        ("double", "i * 2", 2, 4), ("double", "i * 16", 2, 32),
        ("double", "i % 16 * 16 + i / 16", 2, 32), ("char", "i", 1, 1),
    ],
)  # fmt: skip
def test_banks_are_counted(racing: RaceDevice, kind: str, place: str, phases: int, turns: int) -> None:
    """A read after a barrier, beside one write of each element in whose banks no two threads meet."""
    body = f"""
    __shared__ {kind} held[1056];
    for (int i = threadIdx.x; i < 1056; i += 32) held[i] = {kind}(1);
    __syncthreads();
    const int i = threadIdx.x;
    out[i] = held[{place}];"""
    kernel = text_kernel(body, array_out("out", "int32", "32"), block=32)
    written = 33 * (2 if kind == "double" else 1)
    found = counted(racing, kernel, "held", "float32", np.zeros(32, np.int32))
    assert found == (written + phases, written + turns)


def convolution(inputs: int, outputs: int, height: int, width: int) -> scipy.sparse.csr_array:
    """The pattern of a transposed Jacobian of 3 x 3 windows, padded by 1."""
    rows, columns = (scipy.sparse.diags([np.ones(n)] * 3, [-1, 0, 1], shape=(n, n)) for n in (height, width))
    channels = np.ones((inputs, outputs))
    return scipy.sparse.csr_array(scipy.sparse.kron(channels, scipy.sparse.kron(rows, columns)))


def turns_of(
    racing: RaceDevice,
    a: scipy.sparse.csr_array,
    b: scipy.sparse.csr_array,
    batch: int,
    real: str = "float32",
) -> float:
    """Turns a phase of what a product row by row reads and writes of its sums; its values are SciPy's."""
    kernel, rng = KERNELS["product_row_wise"], np.random.default_rng(0)
    case = next(product_of(a, b))
    case.scalars.update(batch=batch, a_batched=1, b_batched=1)
    given = arguments(kernel, Variant(real), case, rng)
    phases, turns = counted(racing, kernel, "sums", real, *given)
    left, right, found = (
        value.reshape(-1, batch) for p, value in zip(kernel.parameters, given, strict=True) if p.name in "abc"
    )
    for sample in {0, batch - 1}:
        product = with_values(a, left[:, sample]) @ with_values(b, right[:, sample])
        product.sort_indices()
        assert_close(found[:, sample], product.data, length=a.shape[1])
    return turns / phases


def with_values(pattern: scipy.sparse.csr_array, values: np.ndarray) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array((values.astype("float64"), pattern.indices, pattern.indptr), pattern.shape)


IMAGE = convolution(3, 4, 32, 32)
#: Most turns a phase, by samples. Random columns meet as balls in urns do.
OF_IMAGES = {1: 1.3, 2: 1.55, 4: 1.4, 8: 1.6, 16: 1.1, 26: 1.0, 31: 1.0, 32: 1.0, 33: 1.05}
AT_RANDOM = {1: 2.4, 4: 2.1, 16: 1.35, 31: 1.0, 32: 1.0}


@pytest.mark.parametrize("batch", OF_IMAGES)
def test_columns_of_images_do_not_meet_in_one_bank(racing: RaceDevice, batch: int) -> None:
    """Rows of 32, channels of 1024: in plain places 3.9 turns for 1 sample, 2.7 for 2, 1.7 for 4."""
    assert turns_of(racing, convolution(2, 3, 32, 32)[100:101], IMAGE, batch) <= OF_IMAGES[batch]


@pytest.mark.parametrize("batch", AT_RANDOM)
def test_random_columns_meet_no_more_than_balls_in_urns(racing: RaceDevice, batch: int) -> None:
    rng = np.random.default_rng(0)
    a, b = random_pattern(rng, 1, 20, 0.7), random_pattern(rng, 20, 600, 0.1)
    assert turns_of(racing, a, b, batch) <= AT_RANDOM[batch]


@pytest.mark.parametrize("batch, most", [(1, 1.55), (8, 1.1), (15, 1.0), (16, 1.0), (32, 1.0)])
def test_reals_of_8_bytes(racing: RaceDevice, batch: int, most: float) -> None:
    assert turns_of(racing, convolution(2, 3, 32, 32)[100:101], IMAGE, batch, "float64") <= most
