"""What layers refuse, and that the message names both sides."""

import numpy as np
import pytest

from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import AdaptiveAvgPool2d, AvgPool2d, Conv2d, Dropout, Flatten, Linear, MaxPool2d

REFUSED_ARGUMENTS = [
    (lambda: Conv2d(3, 6, 0), "Conv2d(3, 6, 0) got kernel_size=0: it takes an integer of at least 1"),
    (lambda: Conv2d(3, 6, (1, 2, 3)), "kernel_size=(1, 2, 3): it takes an integer or a pair"),
    (lambda: Conv2d(3, 6, 2.5), "kernel_size=2.5: it takes an integer or a pair"),
    (lambda: Conv2d(0, 6, 3), "Conv2d(0, 6, 3) got in_channels=0: it takes an integer of at least 1"),
    (lambda: Conv2d(3, 6, 3, groups=0), "got groups=0: it takes an integer of at least 1"),
    (lambda: Conv2d(3, 6, 3, groups=2), "groups=2: it must divide 3 input and 6 output channels"),
    (lambda: Conv2d(3, 6, 3, stride=0), "stride=0: it takes an integer of at least 1"),
    (lambda: Conv2d(3, 6, 3, dilation=0), "dilation=0: it takes an integer of at least 1"),
    (lambda: Conv2d(3, 6, 3, padding=-1), "padding=-1: it takes an integer of at least 0"),
    (lambda: Conv2d(3, 6, 3, padding="full"), "padding='full': as a word it takes 'same' or 'valid'"),
    (lambda: Conv2d(3, 6, 3, 2, "same"), "padding='same' and stride=2: 'same' takes stride 1"),
    (lambda: Conv2d(3, 6, 3, padding_mode="reflect"), "padding_mode='reflect': it takes 'zeros'"),
    (
        lambda: Conv2d(3, 6, 3, mask=np.ones((6, 3))),
        "mask of shape (6, 3): its weight has shape (6, 3, 3, 3)",
    ),
    (lambda: Linear(0, 3), "Linear got in_features=0: it takes an integer of at least 1"),
    (lambda: Linear(4, 3, mask=np.ones((4, 3))), "mask of shape (4, 3): its weight has shape (3, 4)"),
    (
        lambda: Linear(2, 3, mask=np.ma.masked_array(np.ones((3, 2)), np.eye(3, 2))),
        "Linear got mask as a masked array: it takes one without a mask, as array.filled(0)",
    ),
    (lambda: Linear(2, 1, mask=[[1, np.nan]]), "Linear got a mask that is nan at (0, 1): it takes 0 or 1"),
    (lambda: Linear(2, 1, mask=[["1", ""]]), "Linear got mask of <U1: it takes numbers"),
    (lambda: Linear(2, 2, mask=[[1], [1, 0]]), "Linear got mask that is no array"),
    (lambda: MaxPool2d(0), "kernel_size=0: it takes an integer of at least 1"),
    (lambda: MaxPool2d(3, padding=2), "padding=(2, 2) and kernel_size=(3, 3): padding is at most half"),
    (lambda: MaxPool2d(3, stride=0), "stride=0: it takes an integer of at least 1"),
    (lambda: AvgPool2d(2, padding=(1, 2)), "padding=(1, 2) and kernel_size=(2, 2): padding is at most half"),
    (lambda: AvgPool2d(2, divisor_override=0), "divisor_override=0: it must not be 0"),
    (lambda: AvgPool2d(2, divisor_override=2.7), "divisor_override=2.7: it takes an integer"),
    (lambda: AvgPool2d(2, divisor_override=float("nan")), "divisor_override=nan: it takes an integer"),
    (lambda: AvgPool2d(2, divisor_override=True), "divisor_override=True: it takes an integer"),
    (lambda: AvgPool2d(2, count_include_pad="no"), "count_include_pad='no': it takes True or False"),
    (lambda: AvgPool2d(2, ceil_mode="False"), "AvgPool2d(2) got ceil_mode='False': it takes True or False"),
    (lambda: AvgPool2d(2, padding=()), "padding=(): it takes an integer or a pair of them"),
    (lambda: MaxPool2d(2, ceil_mode=2), "MaxPool2d(2) got ceil_mode=2: it takes True or False"),
    (lambda: MaxPool2d(True), "kernel_size=True: it takes an integer of at least 1"),
    (lambda: MaxPool2d((2, 1.5)), "kernel_size=(2, 1.5): it takes an integer or a pair of them"),
    (lambda: Linear(4, 3, bias="no"), "Linear got bias='no': it takes True or False"),
    (lambda: Linear(4, 2**70), f"out_features={2**70}: it takes an integer of at least 1 and at most"),
    (lambda: Conv2d(3, 6, 3, bias="no"), "Conv2d(3, 6, 3) got bias='no': it takes True or False"),
    (lambda: Dropout("0.5"), "Dropout got p='0.5': it takes a probability from 0 to 1"),
    (lambda: Dropout(True), "Dropout got p=True: it takes a probability from 0 to 1"),
    (lambda: Dropout(10**400), "it takes a probability from 0 to 1"),
    (lambda: Flatten(1.7), "Flatten got start_dim=1.7: it takes an integer"),
    (lambda: Flatten(1, "2"), "Flatten got end_dim='2': it takes an integer"),
    (lambda: AdaptiveAvgPool2d(0), "output_size=0: it takes an integer of at least 1"),
    (lambda: AdaptiveAvgPool2d((1, 2, 3)), "output_size=(1, 2, 3): it takes an integer, None or a pair"),
    (lambda: AdaptiveAvgPool2d((1.5, 2)), "output_size=(1.5, 2): it takes an integer, None or a pair"),
    (lambda: Flatten(0), "would join the batch, axis 0: start at 1"),
]

REFUSED_INPUTS = [
    (
        AdaptiveAvgPool2d(1),
        (64,),
        "AdaptiveAvgPool2d got input (64,): it takes images",
    ),
    (AdaptiveAvgPool2d(1), (64, 0, 3), "got input (64, 0, 3): every size must be at least 1"),
    (Conv2d(3, 6, 5), (4, 32, 32), "Conv2d(3, 6, 5) got input (4, 32, 32): 4 channels, it takes 3"),
    (Conv2d(3, 6, 5), (3, 32), "got input (3, 32): it takes images (channels, height, width)"),
    (Conv2d(3, 6, 5), (3, 4, 32), "it is smaller than the kernel, which spans 5 by 5"),
    (Conv2d(3, 6, 3, dilation=2), (3, 5, 4), "it is smaller than the kernel, which spans 5 by 5"),
    (Conv2d(3, 6, 5, padding=2), (3, 0, 4), "every size must be at least 1"),
    (Linear(7, 5), (6,), "Linear(7, 5) got input (6,): its last size must be 7"),
    (Linear(7, 5), (), "its last size must be 7"),
    (MaxPool2d(3), (2, 2, 5), "got an input of (2, 5) padded by (0, 0): a window must fit"),
    (MaxPool2d(3), (7,), "it takes images (channels, height, width)"),
    (AvgPool2d(3), (2, 5, 2), "a window must fit"),
    (Flatten(2, 3), (4, 5), "with the batch it has axes 0 to 2"),
    (Flatten(-1, 1), (4, 5), "in rising order"),
    (Flatten(), (), "with the batch it has axes 0 to 0"),
]


@pytest.mark.parametrize("make, message", REFUSED_ARGUMENTS)
def test_refused_arguments(make, message):
    with pytest.raises(ShapeError) as raised:
        make()
    assert message in str(raised.value)


@pytest.mark.parametrize("layer, shape, message", REFUSED_INPUTS)
def test_refused_inputs(layer, shape, message):
    for ask in (layer.output_shape, *([] if isinstance(layer, (Flatten, Linear)) else [layer.jacobian])):
        with pytest.raises(ShapeError) as raised:
            ask(shape)
        assert message in str(raised.value)


def test_a_masked_layers_mask_cannot_be_written():
    layer = Conv2d(1, 1, 2, mask=np.eye(2)[None, None])
    with pytest.raises(ValueError, match="read-only"):
        layer.masks()["weight"][...] = True
