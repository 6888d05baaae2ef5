"""NCCL's transport of one rank through the installed CuPy's own binding, over nccl_library.cpp."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import cupy
import cupy_stub
import nccl_stub
import numpy as np
from signatures import parameters_of

from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.distributed.nccl import NcclTransport

assert not hasattr(cupy.cuda, "nccl"), "what is to be loaded is loaded"
binding = CudaDevice.nccl(SimpleNamespace(xp=cupy))

# Arrays and streams are the stand-in's, NCCL is CuPy's.
sys.modules["cupy"] = cupy_stub.make_cupy()
device, communicator = CudaDevice(), SimpleNamespace(rank=0, size=1, bcast=lambda value, root: value)
transport = NcclTransport(device, SimpleNamespace(communicator=communicator))
array, into = device.asarray(np.arange(5.0)), device.empty(5, np.float64)
transport.broadcast(array, 0)
transport.allgather(array, into, [array.nbytes])
device.synchronize()
assert device.to_host(into).tolist() == [0, 1, 2, 3, 4] == device.to_host(array).tolist()

# The stand-in for several ranks has the binding's types and signatures.
nccl_stub.kind = {"13": tuple, "14": bytes}[cupy.__version__.partition(".")[0]]
real, ours = binding.get_unique_id(), nccl_stub.get_unique_id()
assert type(real) is type(ours) and len(real) == len(ours)
assert type(real) is bytes or (-128 <= min(real) < 0 and min(ours) == -128)
for other in {bytes(128), tuple(range(-64, 64))} - {real}:
    try:
        binding.NcclCommunicator(1, other, 0)
    except (TypeError, binding.NcclError) as error:
        assert isinstance(error, TypeError) == (type(other) is not nccl_stub.kind)
    else:
        raise AssertionError(f"an identifier that is {type(other).__name__} was taken")
for name in ("get_unique_id", "groupStart", "groupEnd"):
    assert parameters_of(getattr(binding, name)) in (None, {})
for name in ("send", "recv", "broadcast"):
    theirs = parameters_of(getattr(binding.NcclCommunicator, name))
    taken = parameters_of(getattr(nccl_stub.NcclCommunicator, name))
    assert theirs is None or len(theirs) == len(taken or {}), (name, theirs)
assert binding.NCCL_UINT8 == nccl_stub.NCCL_UINT8
print("agrees")
