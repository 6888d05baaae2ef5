"""The gradients by every state of a recurrent layer, which the fused pass back keeps to its registers."""

from __future__ import annotations

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.timescan import products
from bppsa_cupy.timescan.direction import Direction
from bppsa_cupy.timescan.exchange import Gather
from bppsa_cupy.timescan.stack import Stack


def output_gradients(stack: Stack, layer: int, gradient: Array) -> list[Array | None]:
    """The gradient by the output of every step, (T, H, B), for each direction of an inner layer, from the
    stack's last backward pass; None where only the last state has a gradient.

    gradient  by the recurrent layer's output, (B, T, D H) or (B, D H)
    """
    device, sizes = stack.device, stack.sizes
    H, D = sizes.walk.hidden, sizes.directions
    own = stack.layers[layer]
    if layer + 1 == sizes.layers:
        if not sizes.every_step:
            return [None] * D
        shape = own[0].walk.state[:, :H].shape
        taken: list[Array | None] = []
        for number in range(D):
            inside = device.empty_walk(shape, gradient.dtype)
            Gather(device, stack.lengths, inside, number * H)(gradient, stack.ends_early)
            taken.append(inside)
        return taken
    total = None
    for above in stack.layers[layer + 1]:
        part = device.empty_walk((above.delta.shape[0], D * H, above.delta.shape[2]), above.delta.dtype)
        products.project(device, above.delta, above.parameters.weight_ih, None, part, transposed=True)()
        total = part if total is None else total + part
    assert total is not None
    return [device.xp.ascontiguousarray(total[:, n * H : (n + 1) * H]) for n in range(D)]


def state_gradients(
    device: Device, direction: Direction, by_output: Array | None, pattern: Pattern, values: Array
) -> Array:
    """(T, S, B) the gradient by the state after every step, by time.

    by_output  (T, H, B), by the output of every step, or None
    values     (T, nnz, B), the transposed Jacobians, of `pattern`
    """
    (steps, nnz, batch), size = values.shape, pattern.shape[0]
    indptr, indices = (device.upload_index(array) for array in (pattern.indptr, pattern.indices))
    result = device.empty((steps, size, batch), values.dtype)
    nothing = values.reshape(-1)[:0]
    order = range(steps) if direction.walk.reverse else range(steps - 1, -1, -1)
    later = None
    for time in order:
        if later is None:
            result[time] = direction.boundary
        else:
            device.launch(
                KERNELS["csr_spmv"], indptr, indices, values[later], result[later], nothing, result[time],
                size, size, nnz, batch, True, False,
            )  # fmt: skip
        if by_output is not None:
            result[time, : by_output.shape[1]] += by_output[time]
        later = time
    return result
