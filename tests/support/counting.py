"""A host that counts what it is asked for."""

from bppsa_cupy.devices.host import HostDevice


class CountingDevice(HostDevice):
    """The host, with so many bytes free; `taken` counts the bytes of the arrays that it has made."""

    def __init__(self, free=2**40):
        super().__init__()
        self.free, self.taken = free, 0

    def free_memory(self):
        return self.free

    def empty(self, shape, dtype):
        made = super().empty(shape, dtype)
        self.taken += made.nbytes
        return made
