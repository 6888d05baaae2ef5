"""What differs between two networks, as a plan's mismatch tells it."""

import numpy as np
import pytest

import bppsa_cupy as bp
from bppsa_cupy.csr import Pattern
from bppsa_cupy.jacobians.diagonal import ActivationJacobian
from bppsa_cupy.plan import differences
from bppsa_cupy.plan.compare import fingerprint

CONV = {"type": "Conv2d", "in_channels": 3, "kernel_size": [5, 5]}


def test_differences_name_the_field():
    other = {**CONV, "kernel_size": (3, 3)}
    before, after = {"layers": [CONV]}, {"layers": [other]}
    assert differences(before, after) == [
        "layer 0 Conv2d: kernel_size (5, 5) in the plan, (3, 3) in the network"
    ]


def test_lists_and_tuples_are_equal():
    assert differences({"layers": [CONV]}, {"layers": [{**CONV, "kernel_size": (5, 5)}]}) == []


def test_the_order_of_fields_is_of_no_meaning_to_a_fingerprint():
    assert fingerprint(CONV) == fingerprint(dict(reversed(CONV.items())))
    assert fingerprint(CONV) != fingerprint({**CONV, "in_channels": 4})


def test_sizes_that_follow_from_another_difference_are_not_named():
    before = {"layers": [CONV, {"type": "ReLU", "input_shape": [6, 28, 28]}]}
    after = {"layers": [{**CONV, "kernel_size": [3, 3]}, {"type": "ReLU", "input_shape": [6, 30, 30]}]}
    assert len(differences(before, after)) == 1


def test_other_differences():
    before = {"input_shape": [3, 8, 8], "layers": [CONV, {"type": "ReLU"}]}
    after = {"input_shape": [3, 9, 9], "layers": [CONV, {"type": "Tanh"}, {"type": "Flatten"}]}
    assert differences(before, after) == [
        "input_shape (3, 8, 8) in the plan, (3, 9, 9) in the network",
        "layer 1: type ReLU in the plan, Tanh in the network",
        "layer 2 Flatten is in the network, not in the plan",
    ]


def test_masks_are_told_by_the_first_digits_of_their_digests():
    before, after = ({"layers": [{**CONV, "mask": 32 * digits}]} for digits in ("0a", "f1"))
    assert differences(before, after) == [
        "layer 0 Conv2d: mask 0a0a0a0a… in the plan, f1f1f1f1… in the network"
    ]


def test_an_input_shape_that_differs_alone_is_named():
    before, after = ({"layers": [{**CONV, "input_shape": [3, size, 8]}]} for size in (8, 9))
    assert differences(before, after) == [
        "layer 0 Conv2d: input_shape (3, 8, 8) in the plan, (3, 9, 8) in the network"
    ]


def test_every_field_behind_a_difference_is_named():
    """But for the shape of the input, which follows from it."""
    before, after = (
        {"layers": [{**CONV, "in_channels": n, "input_shape": [n, 8, 8], "bias": n}]} for n in (2, 3)
    )
    assert [line.split()[3] for line in differences(before, after)] == ["in_channels", "bias"]


def test_layers_inside_that_one_side_lacks():
    before, after = ({"layers": [{"type": "Residual", **body}]} for body in ({"body": [CONV]}, {}))
    (line,) = differences(before, after)
    assert line.startswith("layer 0 Residual: body (") and line.endswith("in the plan, None in the network")


def test_layers_inside_of_layers_are_named_by_their_path():
    before = {"layers": [CONV, {"type": "Residual", "body": [CONV, {"type": "ReLU"}]}]}
    after = {"layers": [CONV, {"type": "Residual", "body": [{**CONV, "in_channels": 4}]}]}
    assert differences(before, after, holder="file") == [
        "layer 1.body.0 Conv2d: in_channels 3 in the file, 4 in the network",
        "layer 1.body.1 ReLU is in the file, not in the network",
    ]


def test_what_a_file_has_for_layers_may_be_anything():
    assert differences({"layers": 5}, {"layers": [CONV]})[0].startswith("layers 5 in the plan, (")
    assert differences({"layers": [5]}, {"layers": [5]}) == []
    assert differences({"layers": [CONV, 5]}, {"layers": [CONV]})[0].startswith("layers (")


class Shift(bp.SiLU):
    """A layer that says nothing of its pattern: each output is of the input `by` places on."""

    by = 1

    def jacobian(self, input_shape):
        class Shifted(ActivationJacobian):
            def make_pattern(jacobian):
                places = np.arange(jacobian.features)
                return Pattern(
                    (places.size, places.size), [*places, places.size], (places + self.by) % places.size
                )

        return Shifted(*input_shape)


def test_a_layer_of_the_users_whose_pattern_has_changed_needs_another_plan(monkeypatch):
    def network():
        return bp.Sequential([bp.Linear(4, 4), Shift()], input_shape=(4,), device="host")

    plan = network().plan()
    network().use(plan)
    monkeypatch.setattr(Shift, "by", 2)
    with pytest.raises(
        bp.PlanMismatchError, match=r"layer 1 Shift has the pattern \w{12} with 4 entries, \w"
    ):
        network().use(plan)
