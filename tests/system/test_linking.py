"""Compiled functions as parts of one program: what is emitted, who may call them, what is left as it was."""

import json
import subprocess
import sys

import numba
import numpy as np
import pytest
from numba.core.registry import cpu_target
from numba.np import arrayobj

from bppsa_cupy.raw_kernels.twins.simd.addresses import address_of, call_at
from bppsa_cupy.system.compiled import compiled, part

codegen = cpu_target.target_context.codegen()


@part()
def square(value):
    return value * value


@part()
def halves(size):
    made = np.empty(size)
    for i in range(size):
        made[i] = square(0.5)
    return made


@part()
def quarters(size):
    return halves(size).sum()


def test_a_part_is_called_by_python_and_by_functions_of_others_too():
    assert quarters(4) == 1
    assert halves(2).tolist() == [0.25, 0.25]
    assert square(3) == 9

    @numba.njit
    def foreign(size):
        return halves(size).sum() + np.zeros(size).sum() + square(2)

    assert foreign(4) == 5
    assert quarters(4) == 1


def test_a_part_is_called_by_its_address():
    @part()
    def double(values):
        for i in range(values.size):
            values[i] = 2 * square(values[i])

    @part()
    def at(address, values):
        call_at(address, (values,))

    values = np.arange(4.0)
    at(address_of(double, (numba.float64[::1],)), values)
    assert values.tolist() == [0, 2, 8, 18]
    double(values)
    assert values.tolist() == [0, 8, 128, 648]


def test_errors_of_parts_reach_python_and_leave_numba_as_it_was():
    @part()
    def wrong(value):
        return halves(value.no_such_attribute)

    library = codegen._library_class
    with pytest.raises(numba.TypingError, match="no_such_attribute"):
        wrong(1)
    assert codegen._library_class is library
    assert "get_executable" not in vars(cpu_target.target_context)

    @part()
    def raising(value):
        if value > 2:
            raise ValueError("more than two")
        return value

    @part()
    def outer(value):
        return raising(value) + 1

    assert outer(2) == 3
    with pytest.raises(ValueError, match="more than two"):
        outer(3)


def test_an_array_of_another_size_than_its_slice_is_an_error():
    @part()
    def assign(target, source):
        target[1:] = source

    raises = arrayobj.raise_with_shape_context
    target = np.zeros(3)
    assign(target, np.ones(2))
    np.testing.assert_array_equal(target, [0, 1, 1])
    with pytest.raises(ValueError, match="cannot assign slice from input of different size"):
        assign(target, np.ones(3))
    assert arrayobj.raise_with_shape_context is raises


#: Imports what it is given, then says which of the large packages came along.
IMPORTS = """
import json, sys
exec(sys.argv[1])
print(json.dumps([name for name in ("numpy", "scipy", "numba", "h5py") if name in sys.modules]))
"""


@pytest.mark.parametrize("statement", ["import bppsa_cupy", "from bppsa_cupy import ShapeError"])
def test_importing_the_package_imports_no_other(statement):
    output = subprocess.run(
        [sys.executable, "-c", IMPORTS, statement], capture_output=True, encoding="utf-8", check=True
    ).stdout
    assert json.loads(output) == []


def test_a_compiled_function_has_parts_of_its_own():
    """Two functions that share a helper: neither's program needs the other's."""

    @compiled()
    def one(size):
        return halves(size).sum()

    @compiled()
    def other(size):
        return halves(size).max()

    assert one(4) == 1
    assert other(4) == 0.25
