"""Where networks are cut into stages, by the paper's numbers and by PyTorch's names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from marks import some

import bppsa_cupy as bp
from bppsa_cupy.models import build_model

RESNET20 = build_model("resnet20", device="host")


@pytest.mark.parametrize(
    ("ppv", "percent"),
    [
        ((7,), 5.4),
        ((3, 5, 7, 9), 10.5),
        ((3, 5, 7, 9, 11), 17.4),
        ((7, 13), 24.3),
        (range(3, 17, 2), 44.9),
        ((5, 12, 17), 72.3),
        ((7, 13, 19), 99.8),
    ],
)
def test_percentage_of_stale_weights(ppv, percent):
    assert round(100 * bp.Placement(RESNET20, ppv).stale_share, 1) == percent


@given(st.sets(st.integers(1, 19)))
def test_stages_are_the_network_in_order(cuts):
    placement = bp.Placement(RESNET20, sorted(cuts))
    names = [name for stage in placement.parameter_names for name in stage]
    assert names == list(RESNET20.parameters)
    assert sum(placement.weights) == sum(array.size for array in RESNET20.parameters.values())
    assert sorted(name for stage in placement.buffer_names for name in stage) == sorted(RESNET20.buffers)
    assert all(placement.weights)
    # A cut behind an odd counted layer is behind a block; one behind an even layer carries the block's input.
    for cut, boundary in zip(sorted(cuts), placement.boundaries[1:], strict=True):
        assert len(boundary) == (2 if cut % 2 == 0 else 1)


def test_a_cut_inside_of_nested_blocks():
    inner = bp.Residual([bp.Conv2d(2, 3, 3, padding=1), bp.ReLU(), bp.Conv2d(3, 2, 1)], [bp.Conv2d(2, 2, 1)])
    outer = bp.Residual([bp.ReLU(), inner, bp.Conv2d(2, 2, 3, padding=1)])
    net = bp.Sequential([bp.Conv2d(1, 2, 1), outer, bp.Flatten(), bp.Linear(40, 3)], (1, 5, 4), device="host")
    placement = bp.Placement(net, (2, 4))
    assert placement.counted == (
        "0 Conv2d", "1.body.1.body.0 Conv2d", "1.body.1.body.2 Conv2d", "1.body.2 Conv2d", "3 Linear",
    )  # fmt: skip
    assert list(placement.boundaries) == [
        ((1, 5, 4),), ((3, 5, 4), (2, 5, 4), (2, 5, 4)), ((40,),),
    ]  # fmt: skip
    assert placement.parameter_names[1][:4] == (
        "1.body.1.body.2.weight", "1.body.1.body.2.bias", "1.body.1.shortcut.0.weight",
        "1.body.1.shortcut.0.bias",
    )  # fmt: skip


@pytest.mark.parametrize("ppv", [(0,), (20,), (3, 3), (5, 2), "7", (1.5,), None])
def test_a_placement_that_does_not_fit_is_refused(ppv):
    with pytest.raises(bp.BppsaError):
        bp.Placement(RESNET20, ppv)


@pytest.mark.parametrize("model", some("vgg11", long=["vgg16"]))
@pytest.mark.parametrize("cuts", [0, 1, 3, 7])
def test_balanced_cuts(cuts, model):
    net = build_model(model, device="host")
    ppv = bp.balanced_ppv(net, cuts)
    assert len(bp.Placement(net, ppv).stages) == cuts + 1
    assert list(ppv) == sorted(set(ppv))
