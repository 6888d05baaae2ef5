"""Build, show, verify and draw plans."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection
from pathlib import Path

import numpy as np
from tqdm import tqdm

from bppsa_cupy.distributed.network import layer_multiply_adds
from bppsa_cupy.errors import BppsaError, PlanError
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.plan import Partition, Plan
from bppsa_cupy.plan.product import Product, multiply, multiply_masked
from bppsa_cupy.products import PlannedProduct
from bppsa_cupy.products.file import holds_product
from bppsa_cupy.system.files import check_writable
from bppsa_cupy.system.units import counted, in_bytes
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.models import layer_seconds, make_network
from bppsa_cupy.tools.pictures.picture_file import check_picture
from bppsa_cupy.tools.plans.report import print_product_report, print_report, product_report, report
from bppsa_cupy.tools.plans.schedule_picture import draw_schedule


def run_build(arguments: argparse.Namespace) -> None:
    """Plan the network and write the file."""
    check_writable(arguments.output, error=PlanError)
    network = make_network(arguments)
    print(f"device {network.device.name}, {network.dtype}", flush=True)
    options = cli.taken(arguments, "levels", "workers", "batch_size", "schedules", "memory_limit")
    partition = _make_partition(network, arguments)
    plan = network.plan(**options, partition=partition, progress=True)
    plan.save(arguments.output)
    size = arguments.output.stat().st_size
    over = "" if partition is None else f", {partition.ranks} ranks by {','.join(map(str, partition.bounds))}"
    print(f"{arguments.output}: {', '.join(plan.schedules) or 'no schedule'}{over}, {in_bytes(size)}")
    for name, needed in plan.left_out.items():
        print(f"left out: schedule {name}, which takes {needed} bytes: use --memory-limit or fewer --levels")


def _make_partition(network: Sequential, arguments: argparse.Namespace) -> Partition | None:
    """The partition of the options, or None. Raises PlanError where options contradict each other."""
    ranks, bounds, balance = arguments.rank_count, arguments.partition, arguments.balance
    if balance is not None and (ranks is None or bounds is not None):
        raise PlanError("--balance requires --rank-count, and cannot be combined with --partition")
    if bounds is not None:
        partition = Partition(bounds)
        partition.check(len(network), ranks or partition.ranks, "layers")
        return partition
    if ranks is None:
        return None
    is_measured, size = balance == "measured", arguments.batch_size
    weights = layer_seconds(network, size) if is_measured else layer_multiply_adds(network.architecture)
    return Partition.balanced(weights, ranks)


def run_show(arguments: argparse.Namespace) -> None:
    """Print what a plan or a planned product holds: sizes and schedules."""
    facts = {"file": str(arguments.file)}
    print_facts = print_report
    try:
        facts |= report(Plan.load(arguments.file))
    except PlanError:
        if not holds_product(arguments.file):
            raise
        facts |= product_report(arguments.file)
        print_facts = print_product_report
    if arguments.json:
        print(json.dumps(facts))
    else:
        print_facts(facts)


def run_verify(arguments: argparse.Namespace) -> None:
    """Check the seal, and compare every product with one that is made anew."""
    try:
        plan = Plan.load(arguments.file)
    except PlanError:
        if arguments.model is not None or not holds_product(arguments.file):
            raise
        multiplications = PlannedProduct.load(arguments.file).multiplications
        check_products(arguments.file, {p for m in multiplications for p in (m.many, m.single)})
        print(f"{arguments.file}: sound: {counted(len(multiplications), 'product')}")
        return
    products = {key: product for chain in plan.chains for key, product in chain.products.items()}
    check_products(arguments.file, products.values())
    if arguments.model is not None:
        make_network(arguments).use(plan)
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
            check_product_anew(product)
        except BppsaError as error:
            name = f"product {product.a.digest[:12]}_{product.b.digest[:12]}"
            raise PlanError(f"{path}: {name}: {error}") from error


def check_product_anew(product: Product) -> None:
    """Make a product again. Raises PlanError where the pattern or a map differs."""
    a, b, masked = product.a, product.b, product.kind == "masked"
    new = multiply_masked(a, b, product.pattern) if masked else multiply(a, b)
    if (new.pattern, new.multiply_adds) != (product.pattern, product.multiply_adds):
        raise PlanError("the stored pattern or number of multiply-adds is wrong: build it again")
    for name, array in new.maps.items() if new.kind == product.kind else ():
        if not np.array_equal(array, product.maps[name]):
            raise PlanError(f"the stored array {name} is wrong: build it again")


def run_draw(arguments: argparse.Namespace) -> None:
    """A picture of one schedule."""
    check_picture(arguments.output)
    plan = Plan.load(arguments.file)
    if not plan.chains:
        raise PlanError(f"{arguments.file} contains no schedule, because the network has no layers to scan")
    if not 0 <= arguments.chain < len(plan.chains):
        raise PlanError(f"the plan has no chain {arguments.chain}: pass --chain 0 to {len(plan.chains) - 1}")
    chain = plan.chains[arguments.chain]
    name = arguments.schedule or plan.schedules[-1]
    draw_schedule(chain.chain, plan.schedule(arguments.chain, name), arguments.output)
