"""A host that counts what it is asked for."""

from bppsa_cupy.devices.host import HostDevice


class CountingDevice(HostDevice):
    """The host, with so many bytes free.

    taken      bytes of the arrays it has made
    sequences  how many launches each sequence has that it has made
    run        how many launches of sequences have run
    """

    def __init__(self, free=2**40):
        super().__init__()
        self.free, self.taken, self.sequences, self.run = free, 0, [], 0

    def free_memory(self):
        return self.free

    def empty(self, shape, dtype):
        made = super().empty(shape, dtype)
        self.taken += made.nbytes
        return made

    def sequence(self, launches):
        self.sequences.append(len(launches))
        made = super().sequence(launches)

        def call():
            made()
            self.run += len(launches)

        return call
