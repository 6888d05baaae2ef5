"""bppsa-plan over ranks: partitions given and balanced, messages told and drawn."""

import json

import numpy as np
import pytest

import bppsa_cupy as bp
from bppsa_cupy.distributed.balance import layer_multiply_adds
from bppsa_cupy.models import build_model
from bppsa_cupy.plan import Plan
from bppsa_cupy.tools.plan import main
from bppsa_cupy.tools.plans.balance import make_partition
from bppsa_cupy.tools.plans.ranks import schedule_ranks, sent_text

LENET5 = ["build", "lenet5", "--device", "host", "--batch-size", "4", "--input-shape", "1,16,16"]


def built(tmp_path, *options):
    path = str(tmp_path / "p.h5")
    assert main([*LENET5, "-o", path, *options]) == 0
    return path


def stated_error(capsys):
    """The one line on stderr."""
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ")
    return lines[0]


def test_build_and_show_over_ranks(tmp_path, capsys):
    path = built(tmp_path, "--partition", "0,4,8,12", "--levels", "1")
    assert "3 ranks by 0,4,8,12" in capsys.readouterr().out
    plan = Plan.load(path)
    assert plan.partition == bp.Partition((0, 4, 8, 12)) and plan.workers == 3
    assert main(["show", path, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [part["layers"] for part in facts["partition"]] == [[0, 4], [4, 8], [8, 12]]
    (chain,) = facts["chains"]
    sizes, linear = plan.chains[0].sizes, chain["schedules"][0]["over_ranks"]
    # v(4) goes from the last layers to the middle ones, v(7) from there to the first.
    assert linear["sent"] == {
        "vectors": 2,
        "vector_bytes": 4 * (sizes.values_size((0, 5), 4) + sizes.values_size((0, 8), 4)),
        "matrices": 0,
        "matrix_bytes": 0,
    }
    assert [(m["segment"], m["source"], m["target"]) for m in linear["messages"]] == [
        ([0, 5], 2, 1),
        ([0, 8], 1, 0),
    ]
    for schedule in chain["schedules"]:
        rows = schedule["over_ranks"]["ranks"]
        for one in ("sent", "received"):
            assert sum(row[one] for row in rows) == len(schedule["over_ranks"]["messages"])
            assert sum(row[f"{one}_bytes"] for row in rows) == sum(
                m["bytes"] for m in schedule["over_ranks"]["messages"]
            )
        assert sum(row["mm"] for row in rows) == sum(level["mm"] for level in schedule["by_level"])
        assert sum(row["elements"] for row in rows) == len(chain["elements"])
    assert main(["show", path]) == 0
    out = capsys.readouterr().out
    assert "a batch of 4, 3 ranks" in out and "rank 0       layers 0 to 3: Conv2d, ReLU" in out
    assert out.count("messages: ") == 3 and "messages: 2 vectors of" in out
    assert max(map(len, out.splitlines())) <= 120


def test_a_plan_for_one_device_tells_of_no_ranks(tmp_path, capsys):
    path = built(tmp_path, "--schedules", "linear")
    capsys.readouterr()
    assert main(["show", path, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["partition"] is None and facts["chains"][0]["schedules"][0]["over_ranks"] is None


@pytest.mark.parametrize("options", [[], ["--schedule", "blelloch"]])
def test_draw(tmp_path, options):
    path, picture = built(tmp_path, "--ranks", "4"), tmp_path / "p.png"
    assert main(["draw", path, "-o", str(picture), *options]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_more_ranks_than_layers(tmp_path, capsys):
    path = built(tmp_path, "--ranks", "15", "--schedules", "linear")
    assert main(["show", path]) == 0
    out = capsys.readouterr().out
    assert out.count("no layer") == 3 and "rank 14" in out


# ---- partitions ----


@pytest.fixture(scope="module")
def lenet5():
    return build_model("lenet5", device="host")


def test_balanced_by_multiply_adds_is_that_of_distribute(lenet5):
    made = make_partition(lenet5, 3, None, None, 16)
    assert made == bp.Partition.balanced(layer_multiply_adds(lenet5.architecture), 3)
    assert make_partition(lenet5, 3, None, "multiply-adds", 16) == made
    assert make_partition(lenet5, 3, None, "measured", 2).ranks == 3


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 11, 14])
def test_equal_numbers_of_elements(lenet5, ranks):
    items = {element.item for element in lenet5.chains()[0].elements}
    assert len(items) == len(lenet5) - 1  # Flatten is none
    partition = make_partition(lenet5, ranks, None, "elements", 16)
    counts = [sum(index in items for index in partition.part(rank)) for rank in range(ranks)]
    assert sum(counts) == 11 and max(counts) - min(counts) <= 1
    assert partition.items == len(lenet5) and partition.ranks == ranks


def test_equal_bytes(lenet5):
    partition = make_partition(lenet5, 3, None, "bytes", 16)
    weights = np.zeros(len(lenet5))
    for element in lenet5.chains()[0].elements:
        weights[element.item] = element.pattern.nnz * (1 if element.shared else 16) * 4
    assert partition == bp.Partition.balanced(weights, 3)


def test_networks_without_elements():
    net = bp.Sequential([bp.Flatten()], (2, 3), device="host")
    for balance in ("multiply-adds", "measured", "bytes", "elements"):
        assert make_partition(net, 3, None, balance, 1).items == 1


def test_vgg11_sends_what_the_schedule_says():
    """VGG-11 with 97 % pruned, a batch of 16, equal numbers of elements: the vectors of the serial scan."""
    net = build_model("vgg11", device="host", seed=0)
    bp.prune(net, 0.97)
    told = []
    for ranks in (2, 4, 8):
        partition = make_partition(net, ranks, None, "elements", 16)
        plan = net.plan(batch_size=16, schedules=["linear"], levels=0, partition=partition)
        told.append(sent_text(schedule_ranks(plan, plan.chains[0], "linear")["sent"]))
    assert told == ["1 vector of 262 kB", "3 vectors of 2.49 MB", "7 vectors of 8.39 MB"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--partition", "0,4"], "must cover 12 over 1"),
        (["--partition", "0,4,12", "--ranks", "3"], "must cover 12 over 3"),
        (["--partition", "0,4,12", "--balance", "bytes"], "given or balanced"),
        (["--balance", "bytes"], "without --ranks"),
        (["--partition", "4,0,12"], "begin with 0 and do not fall"),
        (["--ranks", "2", "--workers", "3"], "must cover 12 over 3"),
        (["--ranks", "2", "--memory-limit", "10"], "on the fullest of 2 ranks"),
    ],
)
def test_contradictions_are_stated(tmp_path, capsys, options, message):
    path = tmp_path / "p.h5"
    assert main([*LENET5, "-o", str(path), *options]) == 1
    assert message in stated_error(capsys)
    assert not path.exists()


@pytest.mark.parametrize("options", [["--ranks", "0"], ["--partition", "0,a"], ["--balance", "weight"]])
def test_usage(tmp_path, options):
    with pytest.raises(SystemExit) as end:
        main([*LENET5, "-o", str(tmp_path / "p.h5"), *options])
    assert end.value.code == 2
