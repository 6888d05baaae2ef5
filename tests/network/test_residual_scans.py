"""Scans inside of residual blocks: which runs there are, by what plan, and what they compute."""

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import bppsa_cupy as bp
from bppsa_cupy.tools.plan import main as plan_main
from bppsa_cupy.tools.plans.balance import make_partition

METHODS = ("linear", "blelloch", "hybrid")


def nested(kernel_size=3, inner_activation=bp.Tanh):
    """A block whose body holds a block, with layers of no element and without parameters among them."""
    size = {"kernel_size": kernel_size, "padding": kernel_size // 2}
    inner = bp.Residual([bp.Conv2d(2, 2, **size), inner_activation(), bp.Conv2d(2, 2, 1)], [bp.ReLU()])
    body = [
        bp.Conv2d(2, 2, 3, padding=1),
        bp.BatchNorm2d(2),
        bp.ReLU(),
        inner,
        bp.Sigmoid(),
        bp.Conv2d(2, 2, 1),
    ]
    return [
        bp.Conv2d(1, 2, 1), bp.Tanh(), bp.Residual(body, [bp.Conv2d(2, 2, 1), bp.BatchNorm2d(2)]), bp.ReLU(),
        bp.Flatten(), bp.Residual([bp.Linear(24, 24), bp.Tanh()]), bp.Linear(24, 3),
    ]  # fmt: skip


def network(device="host", **options):
    return bp.Sequential(nested(**options), (1, 4, 3), dtype="float64", device=device)


def names(net):
    return [[element.name for element in chain.elements] for chain in net.chains()]


INNER = [["2.body.3.body.2 Conv2d", "2.body.3.body.1 Tanh", "2.body.3.body.0 Conv2d"]]
INNER += [["2.body.3.shortcut.0 ReLU"], ["2.body.5 Conv2d", "2.body.4 Sigmoid"]]
ENDS = [["3 ReLU"], ["5.body.1 Tanh", "5.body.0 Linear"], ["6 Linear"]]


def test_runs_lie_in_the_order_of_their_layers():
    net = network()
    assert names(net) == [
        ["1 Tanh", "0 Conv2d"], ["2.body.0 Conv2d"], ["2.body.2 ReLU"], *INNER, ["2.shortcut.0 Conv2d"],
        *ENDS,
    ]  # fmt: skip
    assert names(net.eval()) == [
        ["1 Tanh", "0 Conv2d"], ["2.body.2 ReLU", "2.body.1 BatchNorm2d", "2.body.0 Conv2d"], *INNER,
        ["2.shortcut.1 BatchNorm2d", "2.shortcut.0 Conv2d"], *ENDS,
    ]  # fmt: skip
    assert [run.position for run in net.architecture.runs] == list(range(9))
    owners = [{element.item for element in chain.elements} for chain in net.chains()]
    assert [list(items) for items in owners] == [[0, 1], [2], [2], [2], [2], [2], [3], [5], [6]]


def test_equal_blocks_share_patterns_and_products():
    def blocks(count):
        body = [bp.Conv2d(2, 2, 3, padding=1), bp.ReLU(), bp.Conv2d(2, 2, 3, padding=1), bp.Tanh(), bp.ReLU()]
        return bp.Sequential([bp.Residual(body) for _ in range(count)], (2, 3, 3), device="host")

    net = blocks(3)
    patterns = [[id(element.pattern) for element in chain.elements] for chain in net.chains()]
    assert patterns[0] == patterns[1] == patterns[2] and len(set(patterns[0])) == 3
    one, three = (blocks(count).plan(batch_size=1).chains for count in (1, 3))
    assert len(three) == 3 and three[0].products.keys() == one[0].products.keys() and one[0].products
    assert three[2].sizes.multiply_adds(three[2].schedules["blelloch"].steps[0]) > 0
    assert three[2].chain.elements[0].name == "2.body.4 ReLU"


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batch", [1, 3])
def test_every_method_gives_the_vjps_gradients(training, batch, rng):
    net = network()
    net.forward(rng.standard_normal((4, 1, 4, 3)))
    net.training = training
    net.use(net.plan(batch_size=3))
    x, gradient = rng.standard_normal((batch, 1, 4, 3)), rng.standard_normal((batch, 3))
    net.forward(x)
    by_input = net.backward(gradient, "bp", input_gradient=True).copy()
    expected, norms = net.gradients.to_host(), told(net)
    for method in METHODS:
        for wanted in (True, False):
            net.gradients.flat[...] = np.nan
            got = net.backward(gradient, method, input_gradient=wanted)
            assert (got is not None) == wanted
            if wanted:
                assert_allclose(got, by_input, rtol=1e-11, atol=1e-14)
            assert len(net.last_backward.schedules) == len(net.architecture.runs)
            for name, array in net.gradients.items():
                assert_allclose(array, expected[name], rtol=1e-11, atol=1e-14, err_msg=f"{method} {name}")
        again = told(net)
        assert list(again) == list(norms)
        assert_allclose(list(again.values()), list(norms.values()), rtol=1e-11)


@pytest.mark.parametrize("method", METHODS)
def test_every_device(device, method, rng):
    twin, net = network().eval(), network(device).eval()
    x, gradient = rng.standard_normal((2, 1, 4, 3)), rng.standard_normal((2, 3))
    twin.forward(x)
    by_input = twin.backward(gradient, "bp", input_gradient=True)
    net.use(net.plan(levels=1, batch_size=2))
    net.forward(device.asarray(x))
    got = device.to_host(net.backward(device.asarray(gradient), method, input_gradient=True))
    assert_allclose(got, by_input, rtol=1e-11, atol=1e-14)
    for name, array in net.gradients.to_host().items():
        assert_allclose(array, twin.gradients[name], rtol=1e-11, atol=1e-14, err_msg=name)


def told(net):
    """The norms of gradients by output that records tell, by label."""
    return {record.label: record.gradient_norm for record in net.transposed_jacobians()}


def test_records_forget_the_gradients_of_another_pass(rng):
    net = network().eval()
    net.use(net.plan(batch_size=2))
    x = rng.standard_normal((2, 2, 1, 4, 3))
    net.forward(x[0])
    net.backward(rng.standard_normal((2, 3)), "linear")
    first = net.last_pass
    assert None not in [record.gradient_norm for record in net.transposed_jacobians(of=first)]
    net.forward(x[1])
    net.backward(rng.standard_normal((2, 3)), "linear")
    assert {record.gradient_norm for record in net.transposed_jacobians(of=first)} == {None}
    net.forward(x[0], into=net.last_pass)
    assert {record.gradient_norm for record in net.transposed_jacobians()} == {None}


def test_two_passes_alive_at_once(rng):
    net = network().eval()
    net.use(net.plan(batch_size=2))
    x, gradient = rng.standard_normal((2, 2, 1, 4, 3)), rng.standard_normal((2, 3))
    passes = []
    for images in x:
        net.forward(images)
        passes.append(net.last_pass)
    for current, images in zip(passes, x, strict=True):
        net.backward(gradient, "blelloch", of=current)
        got = net.gradients.to_host()
        net.forward(images)
        net.backward(gradient, "bp")
        for name, array in net.gradients.items():
            assert_allclose(got[name], array, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("method", METHODS)
def test_single_elements_inside_need_no_plan(method, rng):
    layers = [bp.Residual([bp.Conv2d(1, 1, 3, padding=1), bp.BatchNorm2d(1)], [bp.Tanh()]), bp.BatchNorm2d(1)]
    net = bp.Sequential(layers, (1, 3, 3), dtype="float64", device="host")
    assert not net.needs_plan
    y = net.forward(rng.standard_normal((2, 1, 3, 3)))
    gradient = rng.standard_normal(y.shape)
    net.backward(gradient, method)
    got = net.gradients.to_host()
    net.backward(gradient, "bp")
    assert all(np.array_equal(array, net.gradients[name]) for name, array in got.items())
    net.eval().forward(rng.standard_normal((2, 1, 3, 3)))
    assert net.needs_plan
    with pytest.raises(bp.PlanError, match="scans by a plan and none is in use"):
        net.backward(gradient, method)


def test_what_a_branch_does_not_need_is_not_scanned(rng):
    layers = [bp.Residual([bp.Conv2d(1, 1, 1), bp.ReLU(), bp.Conv2d(1, 1, 1)], [bp.Tanh(), bp.Sigmoid()])]
    net = bp.Sequential([bp.ReLU(), *layers], (1, 3, 3), dtype="float64", device="host")
    net.use(net.plan(batch_size=2))
    gradient = np.ones_like(net.forward(rng.standard_normal((2, 1, 3, 3))))
    net.backward(gradient, "linear")
    assert len(net.last_backward.schedules) == 2  # the first layer's run is before all parameters
    scanned = dict(net.architecture.section.scanned(False))
    assert {run.position: wanted for run, wanted in scanned.items()} == {1: False, 2: False}
    net.backward(gradient, "linear", input_gradient=True)
    assert len(net.last_backward.schedules) == 3


def test_a_plan_of_another_body_is_refused_with_the_place():
    plan = network().plan(batch_size=1)
    with pytest.raises(bp.PlanMismatchError, match=r"layer 2.body.3.body.0 Conv2d: kernel_size"):
        network(kernel_size=1).use(plan)
    with pytest.raises(bp.PlanMismatchError, match=r"layer 2.body.3.body.1: type Tanh in the plan, GELU"):
        network(inner_activation=bp.GELU).use(plan)
    masked = network()
    masked.set_masks({"2.body.3.body.2.weight": np.eye(2).reshape(2, 2, 1, 1)})
    with pytest.raises(bp.PlanMismatchError, match=r"layer 2.body.3.body.2 Conv2d: weight_mask"):
        masked.use(plan)
    with pytest.raises(bp.PlanMismatchError, match="mode training in the plan, evaluation in the network"):
        network().eval().use(plan)


def test_a_plan_that_lacks_the_chains_inside_is_refused(tmp_path):
    net = network()
    plan = net.plan(batch_size=1)
    outside = [chain for chain in plan.chains if "." not in chain.chain.elements[0].name]
    replace(plan, chains=tuple(outside)).save(tmp_path / "old.h5")
    words = "chain 1 is 3 ReLU in the plan, 2.body.0 Conv2d in the network; build it again"
    with pytest.raises(bp.PlanMismatchError, match=words):
        net.use(bp.Plan.load(tmp_path / "old.h5"))
    with pytest.raises(bp.PlanMismatchError, match="chain 9 is none in the plan, 6 Linear in the network"):
        net.use(replace(plan, chains=plan.chains[:-1]))


def test_the_plan_tool_tells_the_places(tmp_path, capsys):
    model = tmp_path / "model.py"
    model.write_text(
        "import bppsa_cupy as bp\n\ndef net(**options):\n"
        "    body = [bp.Conv2d(1, 1, 3, padding=1), bp.ReLU(), bp.Conv2d(1, 1, 3, padding=1)]\n"
        "    return bp.Sequential([bp.Conv2d(1, 1, 1), bp.Residual(body)], (1, 4, 4), **options)\n"
    )
    plan = str(tmp_path / "p.h5")
    build = ["build", f"{model}:net", "--batch-size", "2", "--device", "host", "-o", plan]
    for arguments in (build, ["show", plan], ["explain", plan]):
        assert plan_main(arguments) == 0
    told = capsys.readouterr().out
    assert "1.body.2 Conv2d" in told and "1.body.0 Conv2d" in told
    assert plan_main(["show", plan, "--json"]) == 0
    chains = json.loads(capsys.readouterr().out)["chains"]
    assert [len(chain["elements"]) for chain in chains] == [1, 3]
    picture = tmp_path / "p.png"
    assert plan_main(["draw", plan, "--chain", "1", "-o", str(picture)]) == 0 and picture.stat().st_size


@pytest.mark.parametrize("balance", ["multiply-adds", "measured", "bytes", "elements"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_block_lies_on_one_rank(balance, ranks):
    net = network()
    partition = make_partition(net, ranks, None, balance, 2)
    plan = net.plan(batch_size=2, partition=partition)
    inside = [chain.chain.owners(partition) for chain in plan.chains[1:7]]
    assert len({owner for owners in inside for owner in owners}) == 1
    if balance == "elements":
        counts = np.zeros(ranks)
        for chain in plan.chains:
            np.add.at(counts, list(chain.chain.owners(partition)), 1)
        assert counts.sum() == 15 and counts.max() <= 11 and counts.min() >= 1
