"""Layers against PyTorch: outputs, gradients by the input and by the parameters, on every device."""

import numba
import numpy as np
import pytest
import torch
from layer_cases import CASE, CASES, LayerCase, make_context, reference_gradient, reference_module
from tolerances import assert_close

from bppsa_cupy.devices import get_device
from bppsa_cupy.layers import LAYERS, CellLayer, Embedding, LinearRecurrent

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> LayerCase:
    return request.param


@pytest.mark.parametrize("batch", [1, 3])
def test_agrees_with_pytorch(case, batch, device, dtype, rng):
    layer = case.make()
    ctx = make_context(layer, device, dtype, case.input_shape)
    module = reference_module(case, ctx)
    x = rng.standard_normal((batch, *case.input_shape)).astype(dtype)
    reference_x = torch.from_numpy(x.astype(np.float64)).requires_grad_()
    reference_y = module(reference_x)
    gradient = rng.standard_normal(reference_y.shape).astype(dtype)
    reference_y.backward(torch.from_numpy(gradient.astype(np.float64)))

    y = layer.forward(ctx, device.asarray(x))
    assert ctx.saved["output"] is y
    assert y.shape[1:] == layer.output_shape(case.input_shape)
    positions = batch * gradient[0].size
    # Taken before and after: the input's gradient does not disturb the parameters' or the reverse.
    layer.parameter_gradients(ctx, device.asarray(gradient))
    input_gradient = layer.vjp(ctx, device.asarray(gradient))

    assert_close(device.to_host(y), reference_y.detach().numpy(), case.length)
    assert_close(device.to_host(input_gradient), reference_x.grad.numpy(), case.length * gradient.shape[1])
    assert set(ctx.gradients) == set(layer.parameter_shapes()) == set(dict(module.named_parameters()))
    for name, ours in ctx.gradients.items():
        assert_close(device.to_host(ours), reference_gradient(module, name), case.length * positions)


def test_passes_repeat_bit_for_bit(case, device, rng):
    layer = case.make()
    x = rng.standard_normal((5, *case.input_shape)).astype(np.float32)
    gradient = rng.standard_normal((5, *layer.output_shape(case.input_shape))).astype(np.float32)
    runs = []
    for _ in range(2):
        ctx = make_context(layer, device, np.float32, case.input_shape)
        y = layer.forward(ctx, device.asarray(x))
        layer.parameter_gradients(ctx, device.asarray(gradient))
        result = layer.vjp(ctx, device.asarray(gradient))
        runs.append([device.to_host(a).tobytes() for a in (y, result, *ctx.gradients.values())])
    assert runs[0] == runs[1]


@pytest.mark.parametrize("want_input", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_a_way_back_in_two_halves_is_that_in_one(case, want_input, training, rng):
    """To the bit, also where another pass goes back in between, on buffers of its own."""
    layer, host, found = case.make(), get_device("host"), []
    x = rng.standard_normal((2, 3, *case.input_shape))
    gradients = rng.standard_normal((2, 3, *layer.output_shape(case.input_shape)))
    contexts = [make_context(layer, host, np.float64, case.input_shape, training=training) for _ in range(4)]
    for number, ctx in enumerate(contexts):
        layer.forward(ctx, x[number % 2].copy())
    for ctx, gradient in zip(contexts[:2], gradients, strict=True):
        found.append(layer.backward(ctx, gradient.copy(), want_input))
    for ctx, gradient in zip(contexts[2:], gradients, strict=True):
        found.append(layer.backward_by_input(ctx, gradient, want_input))
    for ctx, gradient in zip(contexts[2:], gradients, strict=True):
        layer.backward_by_weights(ctx, gradient)
    for number, (one, other) in enumerate(zip(contexts[:2], contexts[2:], strict=True)):
        assert (found[number] is None) == (found[number + 2] is None) == (not want_input)
        np.testing.assert_array_equal(found[number + 2], found[number])
        for name, gradient in one.gradients.items():
            np.testing.assert_array_equal(other.gradients[name], gradient, err_msg=name)


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="needs two threads")
@pytest.mark.parametrize("name", [case.name for case in CASES if case.name.startswith("Conv2d")])
def test_convolutions_do_not_depend_on_the_number_of_threads(name, rng):
    case, device, runs = CASE[name], get_device("host"), []
    layer = case.make()
    x = rng.standard_normal((35, *case.input_shape)).astype(np.float32)
    gradient = rng.standard_normal((35, *layer.output_shape(case.input_shape))).astype(np.float32)
    before = numba.get_num_threads()
    for threads in (1, 2):
        numba.set_num_threads(threads)
        try:
            ctx = make_context(layer, device, np.float32, case.input_shape)
            y = layer.forward(ctx, x)
            layer.parameter_gradients(ctx, gradient)
            result = layer.vjp(ctx, gradient)
        finally:
            numba.set_num_threads(before)
        runs.append([array.tobytes() for array in (y, result, *ctx.gradients.values())])
    assert runs[0] == runs[1]


def test_a_smaller_batch_follows_a_larger(case, device, rng):
    layer = case.make()
    x = rng.standard_normal((4, *case.input_shape))
    ctx = make_context(layer, device, np.float64, case.input_shape, training=False)
    whole = device.to_host(layer.forward(ctx, device.asarray(x))).copy()
    part = device.to_host(layer.forward(ctx, device.asarray(x[1:3])))
    assert_close(part, whole[1:3], case.length)


def test_config_makes_the_layer_again(case):
    layer = case.make()
    again = type(layer)(**layer.config(), **({"mask": layer.masks()["weight"]} if layer.masks() else {}))
    assert again.config() == layer.config()
    assert repr(again) == repr(layer)
    assert again.parameter_shapes() == layer.parameter_shapes()
    assert again.output_shape(case.input_shape) == layer.output_shape(case.input_shape)


def test_initial_parameters_are_pytorchs_distribution(case):
    layer = case.make()
    initial = layer.initialize(np.random.default_rng(1))
    assert {name: array.shape for name, array in initial.items()} == layer.parameter_shapes()
    torch.manual_seed(1)
    draws = [case.reference() for _ in range(50)]
    for name, array in initial.items():
        bound = max(module.get_parameter(name).detach().abs().max().item() for module in draws)
        assert np.abs(array).max() <= bound * 1.05
        kept = layer.masks().get(name, np.ones(array.shape, bool))
        assert not array[~kept].any()
        if kept.sum() > 20:
            assert np.abs(array).max() > bound * 0.7


def test_every_layer_has_a_case():
    """Layers of cells, linear recurrences and Embedding, whose input is indices, have tests of their own."""
    elsewhere = CellLayer, LinearRecurrent, Embedding
    others = {name for name, kind in LAYERS.items() if issubclass(kind, elsewhere)}
    assert {type(case.make()).__name__ for case in CASES} == set(LAYERS) - others
