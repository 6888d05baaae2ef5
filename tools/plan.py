"""Build, show, verify and draw plans: the products and schedules of a network's scans."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection
from pathlib import Path

from tqdm import tqdm

from bppsa_cupy.errors import BppsaError, PlanError
from bppsa_cupy.plan import SCHEDULES, Plan
from bppsa_cupy.plan.counts import message_bytes
from bppsa_cupy.plan.product import Product, check_against_new
from bppsa_cupy.plan.sizes import count
from bppsa_cupy.products import PlannedProduct
from bppsa_cupy.products.file import holds_product
from bppsa_cupy.system.files import check_writable
from bppsa_cupy.system.units import counted, in_bytes
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.pictures.picture_file import check_picture
from bppsa_cupy.tools.plans.balance import add_partition, make_partition
from bppsa_cupy.tools.plans.explain import add_explain
from bppsa_cupy.tools.plans.flops import flops, print_flops
from bppsa_cupy.tools.plans.flops_picture import draw_flops
from bppsa_cupy.tools.plans.pipeline import add_pipeline
from bppsa_cupy.tools.plans.product_report import print_product_report, product_report
from bppsa_cupy.tools.plans.ranks_picture import draw_placement
from bppsa_cupy.tools.plans.report import print_report, report
from bppsa_cupy.tools.plans.schedule_picture import draw_schedule

#: `show` compares the SHA-256 of files up to this size unless told otherwise: an eighth of a second.
CHECKED_BYTES = 2**28


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = cli.command("bppsa-plan", __doc__)
    commands = result.add_subparsers(required=True, metavar="COMMAND")

    build = commands.add_parser("build", help="work out a network's plan")
    cli.add_model(build)
    cli.add_mode(build)
    build.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="HDF5 file to write")
    build.add_argument(
        "--schedules",
        type=schedule_names,
        metavar="NAMES",
        help=f"some of {','.join(SCHEDULES)} (default: all that fit the memory limit)",
    )
    build.add_argument(
        "--levels",
        type=level_count,
        default="auto",
        metavar="auto|N",
        help="up-sweep levels of the hybrid schedule (default auto: the fewest multiply-adds on the critical "
        "path of the workers; 0 for one worker)",
    )
    build.add_argument(
        "--batch-size", type=cli.positive, default=256, metavar="B", help="largest batch (default 256)"
    )
    build.add_argument(
        "--workers",
        type=cli.positive,
        metavar="P",
        help="workers that share the steps (default 1: a device runs one after another)",
    )
    build.add_argument(
        "--memory-limit",
        type=cli.byte_size,
        metavar="BYTES",
        help="of a schedule, over ranks on each of them, as 2GiB (default: 3/4 of what is free)",
    )
    add_partition(build)
    build.set_defaults(run=run_build)

    show = commands.add_parser("show", help="sizes and schedules of a plan, or sizes of a planned product")
    show.add_argument("file", type=Path, metavar="FILE")
    show.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    seal = show.add_mutually_exclusive_group()
    seal.add_argument(
        "--checksum",
        action="store_true",
        default=None,
        help="compare the file's SHA-256 whatever its size, some 0.5 s a GB (default: up to 256 MiB)",
    )
    seal.add_argument(
        "--skip-checksum",
        dest="checksum",
        action="store_false",
        default=None,
        help="do not compare the file's SHA-256",
    )
    show.set_defaults(run=run_show)

    verify = commands.add_parser("verify", help="check a plan or planned product: make every product again")
    verify.add_argument("file", type=Path, metavar="FILE")
    verify.add_argument("--model", metavar="MODEL", help="check that the plan is this network's")
    cli.add_network_options(verify)
    cli.add_mode(verify)
    verify.set_defaults(run=run_verify)

    draw = commands.add_parser("draw", help="draw a schedule (paper, figure 3), over ranks with its messages")
    draw.add_argument("file", type=Path, metavar="FILE")
    draw.add_argument("-o", "--output", type=Path, required=True, metavar="PNG")
    draw.add_argument("--schedule", choices=SCHEDULES, help="default: the last one the plan holds")
    draw.add_argument("--chain", type=int, default=0, metavar="K", help="which run of layers (default 0)")
    draw.set_defaults(run=run_draw)

    flop = commands.add_parser("flops", help="FLOP of every step of every schedule (paper, figure 10)")
    flop.add_argument("file", type=Path, metavar="FILE")
    flop.add_argument("--plot", type=Path, metavar="PNG", help="figure 10 of this plan")
    flop.add_argument("--json", type=Path, metavar="FILE", help="write all numbers here")
    flop.add_argument(
        "--planned-only", action="store_true", help="leave out the same network without its masks"
    )
    flop.set_defaults(run=run_flops)

    add_explain(commands)
    add_pipeline(commands)
    return result


def schedule_names(text: str) -> tuple[str, ...]:
    """The argument type of a list of schedules: "linear,blelloch"."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    unknown = [name for name in names if name not in SCHEDULES]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is no schedule: there are {', '.join(SCHEDULES)}")
    return names


def level_count(text: str) -> int | str:
    """The argument type of "auto" or a number of levels."""
    if text == "auto":
        return text
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of levels: give auto, 0, 1, …")
    return int(text)


def main(argv: list[str] | None = None) -> int:
    """Entry point of bppsa-plan; returns the exit code."""
    arguments = parser().parse_args(argv)
    return cli.run(arguments.run, arguments)


def run_build(arguments: argparse.Namespace) -> None:
    """Plan the network and write the file."""
    check_writable(arguments.output, error=PlanError)
    network = cli.make_network(arguments)
    print(f"device {network.device.name}, {network.dtype}", flush=True)
    left_out: list[str] = []
    options = cli.taken(arguments, "levels", "workers", "batch_size", "schedules", "memory_limit")
    partition = make_partition(
        network, arguments.ranks, arguments.partition, arguments.balance, arguments.batch_size
    )
    plan = network.plan(**options, partition=partition, progress=True, tell=left_out.append)
    plan.save(arguments.output)
    size = arguments.output.stat().st_size
    over = "" if partition is None else f", {partition.ranks} ranks by {','.join(map(str, partition.bounds))}"
    print(f"{arguments.output}: {', '.join(plan.schedules) or 'no schedule'}{over}, {in_bytes(size)}")
    for line in left_out:
        print(f"left out: {line}")


def run_show(arguments: argparse.Namespace) -> None:
    """Print what a plan or a planned product holds: sizes and schedules, no array is read."""
    verify = arguments.checksum
    if verify is None:
        verify = not arguments.file.is_file() or arguments.file.stat().st_size <= CHECKED_BYTES
    facts = {"file": str(arguments.file), "checksum": verify}
    print_facts = print_report
    try:
        facts |= report(Plan.outline(arguments.file, verify=verify))
    except PlanError:
        if not holds_product(arguments.file):
            raise
        facts |= product_report(arguments.file, verify)
        print_facts = print_product_report
    if arguments.json:
        print(json.dumps(facts))
    else:
        print_facts(facts)


def run_verify(arguments: argparse.Namespace) -> None:
    """Make all checks of the reader, and compare every product with one that is made anew."""
    try:
        plan = Plan.load(arguments.file)
    except PlanError:
        if arguments.model is not None or not holds_product(arguments.file):
            raise
        multiplications = PlannedProduct.load(arguments.file).multiplications
        check_products(arguments.file, {p for m in multiplications for p in (m.many, m.one)})
        print(f"{arguments.file}: sound: {counted(len(multiplications), 'product')}")
        return
    products = {key: product for chain in plan.chains for key, product in chain.products.items()}
    check_products(arguments.file, products.values())
    if arguments.model is not None:
        cli.make_network(arguments).use(plan)
    whose = f", of {arguments.model}" if arguments.model is not None else ""
    print(
        f"{arguments.file}: sound{whose}: {counted(len(plan.chains), 'chain')}, "
        f"{counted(len(products), 'product')}, "
        f"{', '.join(plan.schedules) or 'no schedule'}"
    )


def check_products(path: Path, products: Collection[Product]) -> None:
    """Compare products with ones that are made anew. Raises PlanError."""
    for product in tqdm(products, desc="products", disable=not sys.stderr.isatty()):
        try:
            if count(product.a, product.b) != (product.pattern.nnz, product.multiply_adds):
                raise PlanError("its entries or multiply-adds are not those of its factors")
            check_against_new(product)
        except BppsaError as error:
            name = f"product {product.a.digest[:12]}_{product.b.digest[:12]}"
            raise PlanError(f"{path}: {name}: {error}") from error


def run_draw(arguments: argparse.Namespace) -> None:
    """A picture of one schedule."""
    check_picture(arguments.output)
    plan = Plan.load(arguments.file)
    if not plan.chains:
        raise PlanError(f"{arguments.file}: the network has no run of layers to scan: there is none to draw")
    if not 0 <= arguments.chain < len(plan.chains):
        raise PlanError(f"chain {arguments.chain} was asked for: the plan has {len(plan.chains)}, from 0 on")
    chain = plan.chains[arguments.chain]
    name = arguments.schedule or plan.schedules[-1]
    if plan.partition is None:
        draw_schedule(chain.chain, plan.schedule(arguments.chain, name), arguments.output)
        return
    placement = plan.placement(arguments.chain, name)
    amounts = message_bytes(chain.sizes, placement, plan.batch_size, plan.itemsize)
    draw_placement(chain.chain, placement, amounts, arguments.output)


def run_flops(arguments: argparse.Namespace) -> None:
    """Count every schedule's steps, print them, and write JSON and picture."""
    if arguments.json is not None:
        check_writable(arguments.json)
    if arguments.plot is not None:
        check_picture(arguments.plot)
    plan = Plan.load(arguments.file)
    facts = {"file": str(arguments.file), **flops(plan, full=not arguments.planned_only)}
    print_flops(facts)
    if arguments.json is not None:
        cli.write_json(arguments.json, facts)
    if arguments.plot is not None:
        draw_flops(facts, arguments.plot)


if __name__ == "__main__":
    sys.exit(main())
