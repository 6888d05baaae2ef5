"""What a transposed Jacobian is: a pattern from geometry, and a kernel that fills its values."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from functools import cached_property
from typing import Literal

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.devices.base import LARGE
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.system.memory import free_host_memory


class TransposedJacobian(abc.ABC):
    """(∂y/∂x)ᵀ of one layer for one sample: rows are the elements of the input x, columns those of
    the output y, both flattened in C order.

    Law: the pattern follows from the geometry alone and holds every entry that can differ from
    zero for some input; entries that are zero for the input at hand are stored zeros.

    Attributes
    ----------
    depends_on : {'sample', 'parameters', 'nothing'}
        "sample": the values are (nnz, B), batch innermost. "parameters": one (nnz,) array serves every
        sample and is refilled when the parameters change. "nothing": one (nnz,) array is filled once.
    """

    depends_on: Literal["sample", "parameters", "nothing"]

    @property
    def shared(self) -> bool:
        """Whether one set of values, (nnz,), serves every sample."""
        return self.depends_on != "sample"

    @cached_property
    def pattern(self) -> Pattern:
        """The CSR pattern of guaranteed structure, made once.

        Raises DeviceError with the bytes needed and free where the host has too little memory to make it.
        """
        needed = self.bytes_to_make()
        if needed >= LARGE and needed > (free := free_host_memory()):
            raise DeviceError(
                f"the pattern of a transposed Jacobian needs {needed} bytes, but only {free} are free on the "
                "host: pass a mask, use a smaller layer, or use method 'bp', which needs no pattern"
            )
        return self.make_pattern()

    def bytes_to_make(self) -> int:
        """About the most memory that `make_pattern` holds, from the geometry; 0 where it is never large."""
        return 0

    @abc.abstractmethod
    def make_pattern(self) -> Pattern:
        """Work out the pattern from the geometry."""

    @abc.abstractmethod
    def fill(
        self, device: Device, parameters: Mapping[str, Array], saved: Mapping[str, Array], values: Array
    ) -> None:
        """Write the values of the pattern's entries.

        Parameters
        ----------
        parameters : dict of str to array
            The layer's parameters by name.
        saved : dict of str to array
            The arrays that the forward pass of the layer stored.
        values : array
            Written: (nnz,) if `shared`, else (nnz, B), in the dtype of the network.
        """
