"""torch.nn's Conv2d and Linear by the list of the weights that a mask keeps, and MaxPool2d between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, MutableMapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.autograd import forward_ad
from torch.nn.modules.utils import _pair

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.errors import ArgumentError, ShapeError
from bppsa_cupy.layers import Conv2d, Linear, pools
from bppsa_cupy.layers.weighted import Weighted
from bppsa_cupy.raw_kernels.pools import max_pool2d_forward
from bppsa_cupy.torch.autograd import is_without_derivatives
from bppsa_cupy.torch.checks import DTYPES
from bppsa_cupy.torch.engine import array_of, on_device_of, on_host
from bppsa_cupy.torch.transforms import hide_from_dynamo, is_batched, is_recorded

#: Buffers that no state dict has. KEPT: the mask of a module whose zeros were taken for one, bool. INDEX: the
#: places (nnz,) int64 of a compact module's kept weights in the flattened weight. MASKED: a dense weight with
#: its masked values, None where they are 0.
KEPT, INDEX, MASKED = "weight_kept", "weight_index", "weight_masked"

#: Shapes of inputs whose launches a layer keeps.
MOST_SHAPES = 64


class Launches(NamedTuple):
    """The launches of a layer for inputs of one shape, dtype and queue; each takes its arrays.

    shape     of the output
    forward   input, values, output, and the bias if there is one
    back      gradient, values, gradient with respect to the input
    gradients  input, gradient, gradients with respect to the values, and to the bias if there is one
    """

    shape: tuple[int, ...]
    forward: Callable[..., None]
    back: Callable[..., None]
    gradients: Callable[..., None]


class ByList:
    """A layer of the engine with a module's mask.

    kept       (nnz,) int64, the kept positions of the flattened weight, where the module lies
    is_listed  by shape of an input, whether the list computes it
    """

    def __init__(self, layer: Weighted, kept: torch.Tensor) -> None:
        self.layer, self.kept = layer, kept
        self.is_listed: dict[Hashable, bool] = {}
        self._launches: dict[Hashable, Launches] = {}
        #: A dense gradient, its version when it was written, and the references to its memory by then.
        self._spare: tuple[torch.Tensor, int, int] | None = None
        self._bits: torch.Tensor | None = None

    def values_of(self, weight: torch.Tensor) -> torch.Tensor:
        """The kept values (nnz,) of a dense weight; the weight of a compact module itself."""
        return weight if weight.dim() == 1 else weight.reshape(-1).index_select(0, self.kept)

    def zero_masked(self, weight: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The dense weight with zeros where `mask`, which never changes, is False: torch.where takes several
        times as long. Without derivatives."""
        dtype = torch.int32 if weight.dtype == torch.float32 else torch.int64
        if self._bits is None or self._bits.dtype != dtype:
            self._bits = mask.to(dtype).neg_()
        return torch.bitwise_and(weight.view(dtype), self._bits).view(weight.dtype)

    def launches(self, device: Device, x: Array, values: Array, bias: Array | None) -> Launches:
        """The launches for inputs like `x`, bound once."""
        key = device.queue, x.dtype.char, x.shape
        found = self._launches.get(key)
        if found is None:
            if len(self._launches) >= MOST_SHAPES:
                self._launches.clear()
            found = self._launches[key] = self._bind(device, x, values, bias)
        return found

    def _bind(self, device: Device, x: Array, values: Array, bias: Array | None) -> Launches:
        layer, open_bias = self.layer, () if bias is None else ("bias",)
        lists, shape = layer.lists(x.shape[1:]), (len(x), *layer.output_shape(x.shape[1:]))
        assert lists is not None
        given, y = layer.samples(x), layer.samples(device.empty(shape, x.dtype))

        def bind(names: tuple[str, ...], kernel: Any, *arguments: Any) -> Callable[..., None]:
            return device.bind_open(kernel, names, *arguments)

        forward, back = ("input", "values", "output"), ("input", "values", "output")
        gradients = "input", "gradient", "weight_gradient"
        by_bias = tuple(f"{name}_gradient" for name in open_bias)
        return Launches(
            shape,
            bind(forward + open_bias, *lists.convolve(device, given, values, bias, y, "forward")),
            bind(back, *lists.convolve(device, y, values, None, given, "back")),
            bind(gradients + by_bias, *lists.find_weight_gradient(device, given, y, values, bias)),
        )

    def spread_gradient(self, values: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """The dense gradient with these values (nnz,), zeros elsewhere.

        It takes the memory of an earlier one that no other tensor holds any more, and writes its kept
        values alone unless the others have been written to.
        """
        spare, self._spare = self._spare, None
        if spare is None or _references(spare[0]) > spare[2]:
            dense = weight.new_zeros(weight.numel())
            references = _references(dense)
        else:
            dense, version, references = spare
            if dense._version != version:
                dense.zero_()
        dense.index_copy_(0, self.kept, values)
        if weight.is_cpu:
            self._spare = dense, dense._version, references
        return dense.detach().view(weight.shape)


def _references(tensor: torch.Tensor) -> int:
    return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


class Pruned(torch.nn.Module):
    """The forward pass of modules whose weights a mask thins out: `weight_mask` of torch.nn.utils.prune, the
    module's mask attribute, or the positions that were no zeros when the module was converted.

    It uses the list of kept weights where a fixed rule chooses the list for the input, and else PyTorch's
    operator: so for other dtypes than float32 and float64, under torch.autocast, and inside of torch.compile
    and torch.func. Weights outside of the mask are absent, whatever they are, and their gradients 0.

    The weight of a compact module is the array (nnz,) of its kept values. State dicts hold the dense weight.
    """

    bias: Any
    #: The engine's layer, the attributes that it is made of, and the axes of an input of one sample.
    layer_class: type[Conv2d | Linear]
    layer_arguments: tuple[str, ...]
    sample_axes: int
    #: PyTorch's pass by all weights, of input, weight and bias.
    _dense: Callable[..., torch.Tensor]

    def __getattr__(self, name: str) -> Any:
        if name == "weight" and "weight_orig" in self._parameters:
            return masked_weight(self)
        return super().__getattr__(name)

    @property
    def is_compact(self) -> bool:
        """Whether the weight is the array of the kept values."""
        return INDEX in self._buffers

    def register_parameter(self, name: str, param: Any) -> None:
        if self.is_compact and name in ("weight", "weight_orig") and param is not None and param.dim() > 1:
            raise ArgumentError(
                f"{name} of a compact layer stores only the kept weights: call bppsa_cupy.torch.revert first"
            )
        super().register_parameter(name, param)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.is_compact:
            name = weight_name(self)
            values: Any = self._parameters[name]
            dense = spread(self, values, self._buffers[MASKED])
            destination[prefix + name] = dense if keep_vars else dense.detach()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, metadata: Any, *lists: Any) -> None:
        name, mask, buffers = prefix + weight_name(self), mask_of(self), dict[str, Any](self._buffers)
        dense = state_dict.get(name)
        if self.is_compact and isinstance(dense, torch.Tensor) and dense.shape == mask.shape:
            loaded = state_dict.get(prefix + mask_name(self))
            if loaded is not None and not torch.equal((loaded != 0).to(mask.device), mask != 0):
                lists[-1].append(
                    f"{prefix}{mask_name(self)} differs from the mask of the compact layer: use "
                    "bppsa_cupy.torch.revert before loading another mask"
                )
                return
            if buffers[MASKED] is not None:
                buffers[MASKED].copy_(dense)
            state_dict[name] = dense.reshape(-1)[buffers[INDEX].to(dense.device)]
        super()._load_from_state_dict(state_dict, prefix, metadata, *lists)

    def forward(self, input: Any) -> torch.Tensor:
        """PyTorch's output."""
        weight, bias = self._parameters.get(weight_name(self)), self.bias
        mask = self._buffers.get(INDEX)
        if mask is None:
            mask = mask_of(self)
        if weight is None or mask is None:
            return self._dense(input, self.weight, bias)
        known, is_usual = _layers.get(self), is_taken(input, weight, bias)
        is_listed = known.is_listed(mask, input) if known is not None and is_usual else None
        if known is not None and is_listed is False and is_without_derivatives():
            if KEPT in self._buffers and weight.dim() > 1:
                return self._dense(input, known.by_list.zero_masked(weight, mask), bias)
        if is_listed is False or not is_usual or input.numel() == 0:
            return self._dense(input, masked_weight(self), bias)
        by_list = _by_list(self, mask, bias)
        x = input.unsqueeze(0) if input.dim() == self.sample_axes else input
        key = x.shape, x.is_cpu
        is_listed = by_list.is_listed.get(key)
        if is_listed is None:
            is_listed = by_list.is_listed[key] = self._is_listed(by_list.layer, *key)
        if not is_listed:
            return self._dense(input, masked_weight(self), bias)
        if is_without_derivatives():
            y = on_device_of(x, _forward, by_list, x, by_list.values_of(weight), bias)
        else:
            y = _apply(self, by_list, mask, x, weight, bias)
        return y.squeeze(0) if x is not input else y

    def _is_listed(self, layer: Weighted, shape: tuple[int, ...], on_host: bool) -> bool:
        """Whether the list computes an input of this shape, batch included; PyTorch says of others what is
        wrong."""
        try:
            layer.output_shape(shape[1:])
        except ShapeError:
            return False
        device, lists = "host" if on_host else "cuda", layer.lists(shape[1:])
        assert lists is not None
        samples = math.prod(shape) // (lists.geometry.in_channels * math.prod(lists.geometry.in_size))
        pays = not vars(self).get("is_automatic") or lists.pays(device, samples)
        return pays and lists.is_quicker(device)


class PrunedConv2d(Pruned, torch.nn.Conv2d):
    """A torch.nn.Conv2d that computes only with the weights that remain after pruning.

    Created by `convert`.

    Arguments and parameters are those of torch.nn.Conv2d.

    Examples
    --------
    >>> import torch, bppsa_cupy.torch as bt
    >>> conv = torch.nn.Conv2d(2, 3, 3)
    >>> _ = torch.nn.utils.prune.random_unstructured(conv, "weight", 0.9)
    >>> type(bt.convert(conv, sparse=0.5)).__name__
    'PrunedConv2d'
    """

    torch_class, layer_class, sample_axes = torch.nn.Conv2d, Conv2d, 3
    layer_arguments = "in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups"

    def _dense(self, x: Any, weight: Any, bias: Any) -> torch.Tensor:
        return self._conv_forward(x, weight, bias)


class PrunedLinear(Pruned, torch.nn.Linear):
    """A torch.nn.Linear that computes only with the weights that remain after pruning.

    Created by `convert`.

    Arguments and parameters are those of torch.nn.Linear.

    Examples
    --------
    >>> import torch, bppsa_cupy.torch as bt
    >>> linear = torch.nn.Linear(20, 10)
    >>> _ = torch.nn.utils.prune.random_unstructured(linear, "weight", 0.9)
    >>> type(bt.convert(linear, sparse=0.5)).__name__
    'PrunedLinear'
    """

    torch_class, layer_class, sample_axes = torch.nn.Linear, Linear, 1
    layer_arguments = "in_features", "out_features"

    def _dense(self, x: Any, weight: Any, bias: Any) -> torch.Tensor:
        return torch.nn.functional.linear(x, weight, bias)


def mask_name(module: torch.nn.Module) -> str:
    """The name of the mask of a module's weight: the attribute that `convert` was called with, or that of
    torch.nn.utils.prune."""
    return vars(module).get("mask_attribute") or "weight_mask"


def mask_of(module: torch.nn.Module) -> Any:
    """The mask of a module's weight, a tensor of the dense weight's shape; None without one."""
    name = mask_name(module)
    mask = module._buffers.get(name) if name == "weight_mask" else getattr(module, name)
    return module._buffers.get(KEPT) if mask is None else mask


def weight_name(module: torch.nn.Module) -> str:
    """The name of the parameter that holds the weight."""
    return "weight_orig" if "weight_orig" in module._parameters else "weight"


def spread(module: Pruned, values: torch.Tensor, base: torch.Tensor | None = None) -> torch.Tensor:
    """The dense array of a compact module's values (nnz,), where others are those of `base`, or 0."""
    index: Any = module._buffers[INDEX]
    shape = mask_of(module).shape
    flat = values.new_zeros(math.prod(shape)) if base is None else base.reshape(-1)
    return flat.index_copy(0, index, values).reshape(shape)


def masked_weight(module: Any) -> torch.Tensor:
    """The dense weight with zeros where it is masked, which autograd follows."""
    weight = module._parameters[weight_name(module)]
    return _masked(module, weight, mask_of(module))


def _masked(module: Any, weight: torch.Tensor, mask: Any) -> torch.Tensor:
    if INDEX in module._buffers:
        return spread(module, weight)
    return torch.where(mask if mask.dtype == torch.bool else mask != 0, weight, 0)


def is_taken(x: Any, weight: torch.Tensor, bias: Any) -> bool:
    """Whether the engine takes these tensors, here and now; PyTorch takes, or refuses, all others."""
    dtype, device = weight.dtype, weight.device
    return (
        isinstance(x, torch.Tensor)
        and dtype in DTYPES
        and x.dtype == dtype
        and x.device == device
        and (bias is None or (bias.dtype == dtype and bias.device == device))
        and (weight.is_cpu or weight.is_cuda)
        and not torch.is_autocast_enabled(weight.device.type)
        and not is_recorded()
        and not torch._C._are_functorch_transforms_active()
    )


class Known(NamedTuple):
    """The layer of a module, and what it follows from. It holds the mask, so that no other mask has its
    identity."""

    mask: torch.Tensor
    key: Any
    digest: bytes | None
    by_list: ByList

    def is_listed(self, mask: torch.Tensor, x: torch.Tensor) -> bool | None:
        """How an earlier pass with this mask computed inputs of this shape; None if there was none."""
        is_same = self.mask is mask and self.key[1] == mask._version
        return self.by_list.is_listed.get((x.shape, x.is_cpu)) if is_same else None


_layers: MutableMapping[torch.nn.Module, Known] = WeakKeyDictionary()


def _by_list(module: Pruned, mask: torch.Tensor, bias: Any) -> ByList:
    """The engine's layer, made again where the mask (of a compact module its index) or the module's arguments
    have changed."""
    arguments = tuple(map(vars(module).get, module.layer_arguments))
    key = mask.data_ptr(), mask._version, mask.device, bias is None, arguments
    digest, known = _digest(module, mask), _layers.get(module)
    if known is None or known.mask is not mask or known.key != key or digest not in (None, known.digest):
        index = mask.detach()
        if not module.is_compact:
            index = index.reshape(-1).nonzero().reshape(-1)
        bits = np.zeros(mask_of(module).shape, bool)
        bits.reshape(-1)[index.cpu().numpy()] = True
        given: Any = dict(zip(module.layer_arguments, arguments, strict=True))
        layer = module.layer_class(**given, bias=bias is not None, mask=bits)
        known = _layers[module] = Known(mask, key, digest, ByList(layer, index))
    return known.by_list


def _digest(module: Pruned, mask: torch.Tensor) -> bytes | None:
    """The products of a mask's rows with random numbers, which tell what is written into
    `weight_mask.data`: that changes no version. None where it is not computed."""
    is_frozen = KEPT in module._buffers or module.is_compact
    if is_frozen or (mask.is_cuda and torch.cuda.is_current_stream_capturing()):
        return None
    rows = mask.detach().flatten(1)
    rows = rows if rows.dtype in DTYPES else rows.float()
    numbers = _random_numbers(rows.shape[1], str(rows.dtype).removeprefix("torch."))
    if rows.is_cpu:
        return (rows.numpy() @ numbers).tobytes()
    return (rows @ torch.from_numpy(numbers).to(rows.device)).cpu().numpy().tobytes()


@cache
def _random_numbers(count: int, dtype: str) -> np.ndarray:
    return np.random.default_rng(0).uniform(1, 2, count).astype(dtype)


class ByListPass(torch.autograd.Function):
    """The pass of a layer by its list. Gradients that have derivatives in turn, or a batch, are PyTorch's."""

    @staticmethod
    @hide_from_dynamo
    def forward(ctx: Any, module: Any, by_list: ByList, mask: Any, x: Any, weight: Any, bias: Any) -> Any:
        values = by_list.values_of(weight)
        if values is not weight:
            ctx.values = values
        ctx.save_for_backward(mask, x, weight, bias)
        ctx.module, ctx.by_list = module, by_list
        return on_device_of(x, _forward, by_list, x, values, bias)

    @staticmethod
    @hide_from_dynamo
    def backward(ctx: Any, gradient: Any) -> Any:
        mask, x, weight, bias = ctx.saved_tensors
        wanted = ctx.needs_input_grad[3:]
        if torch.is_grad_enabled() or is_batched(gradient):
            with torch.enable_grad():
                y = ctx.module._dense(x, _masked(ctx.module, weight, mask), bias)
                asked = [t for t, want in zip((x, weight, bias), wanted, strict=True) if want]
                found = iter(torch.autograd.grad(y, asked, gradient, create_graph=True))
            return None, None, None, *(next(found) if want else None for want in wanted)
        is_dense = weight.dim() > 1
        values = ctx.values if is_dense else weight
        by_input, by_weight, by_bias = on_device_of(
            x, _backward, ctx.by_list, x, values, bias, gradient, wanted
        )
        if wanted[1] and is_dense:
            by_weight = ctx.by_list.spread_gradient(by_weight, weight)
        return None, None, None, by_input, by_weight, by_bias


#: `ByListPass.apply` without what it does for torch.func.
_apply: Any = super(torch.autograd.Function, ByListPass).apply


def _forward(device: Device, by_list: ByList, x: Any, values: Any, bias: Any) -> torch.Tensor:
    device.check_process()
    arrays = [array_of(x), array_of(values)]
    biases = [] if bias is None else [array_of(bias)]
    launches = by_list.launches(device, *arrays, *(biases or [None]))
    y = torch.empty(launches.shape, dtype=x.dtype, device=x.device)
    launches.forward(*arrays, array_of(y), *biases)
    return y


def _backward(
    device: Device, by_list: ByList, x: Any, values: Any, bias: Any, gradient: Any, wanted: Sequence[bool]
) -> tuple[torch.Tensor | None, ...]:
    """The gradients with respect to input, values and bias that are wanted."""
    given, kept, by_output = array_of(x), array_of(values), array_of(gradient)
    launches = by_list.launches(device, given, kept, None if bias is None else array_of(bias))
    by_input, by_parameters = None, []
    if wanted[1] or wanted[2]:
        by_parameters = [torch.empty_like(tensor) for tensor in (values, bias) if tensor is not None]
        launches.gradients(given, by_output, *map(array_of, by_parameters))
    if wanted[0]:
        by_input = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        launches.back(by_output, kept, array_of(by_input))
    return by_input, by_parameters[0] if wanted[1] else None, by_parameters[-1] if wanted[2] else None


# ---- max-pooling ----


class MaxPool2d(torch.nn.MaxPool2d):
    """A torch.nn.MaxPool2d with a kernel of this package on the CPU. Results keep their bits."""

    torch_class = torch.nn.MaxPool2d

    def forward(self, input: Any) -> Any:
        """PyTorch's output."""
        sizes = *map(_pair, (self.kernel_size, self.stride, self.padding, self.dilation)), self.ceil_mode
        is_plain = isinstance(input, torch.Tensor) and input.is_cpu and input.is_contiguous()
        is_plain = is_plain and is_taken(input, input, None) and forward_ad._current_level < 0
        pooling = _pooling_of(input.shape, *sizes) if is_plain and not self.return_indices else None
        if pooling is None:
            return super().forward(input)
        with_grad = torch.is_grad_enabled()
        return _apply_pool(pooling, sizes, input) if with_grad else on_host(_pool, pooling, input)[0]


@lru_cache(maxsize=MOST_SHAPES)
def _pooling_of(
    shape: tuple[int, ...], kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> Any:
    """The output's shape and the kernel's scalars for images (..., channels, rows, columns); None for those
    that PyTorch takes, or refuses."""
    if len(shape) not in (3, 4) or 0 in shape or dilation != (1, 1):
        return None
    try:
        geometry = pools.MaxPool2d(kernel, stride, padding, ceil).geometry(shape[-3:])
    except ShapeError:
        return None
    return (*shape[:-2], *geometry.out_size), (math.prod(shape[:-2]), *geometry.scalars())


class PoolPass(torch.autograd.Function):
    """A max-pooling, whose gradient is PyTorch's."""

    @staticmethod
    @hide_from_dynamo
    def forward(ctx: Any, pooling: Any, sizes: Any, x: Any) -> Any:
        y, indices = on_host(_pool, pooling, x)
        ctx.save_for_backward(x, indices)
        ctx.sizes = sizes
        return y

    @staticmethod
    @hide_from_dynamo
    def backward(ctx: Any, gradient: Any) -> Any:
        x, indices = ctx.saved_tensors
        go_back = torch.ops.aten.max_pool2d_with_indices_backward
        return None, None, go_back(gradient, x, *ctx.sizes, indices.long())


_apply_pool: Any = super(torch.autograd.Function, PoolPass).apply


def _pool(device: Device, pooling: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The maxima and their positions in planes, int32."""
    device.check_process()
    y, indices = torch.empty(pooling[0], dtype=x.dtype), torch.empty(pooling[0], dtype=torch.int32)
    device.launch(max_pool2d_forward, *map(array_of, (x, y, indices)), *pooling[1])
    return y, indices
