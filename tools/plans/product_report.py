"""A planned product in numbers: for people as tables, for programs as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bppsa_cupy.products.file import read_outline
from bppsa_cupy.system.units import in_bytes, quantity
from bppsa_cupy.tools.plans.text import print_table


def product_report(path: Path, verify: bool) -> dict[str, Any]:
    """The sizes in a product file as JSON holds them; multiply-adds are for one sample."""
    factors, multiplications = read_outline(path, verify=verify)
    names = [f"factor {number}" for number in range(1, len(factors) + 1)]
    names += [f"product {number}" for number in range(1, len(multiplications) + 1)]
    return {
        "factors": [
            {"shape": list(p.shape), "nnz": p.nnz, "sparsity": p.sparsity, "reordered": reordered}
            for p, reordered in factors
        ],
        "products": [
            {
                "left": names[m.left],
                "right": names[m.right],
                "shape": list(m.many.pattern.shape),
                "nnz": m.many.pattern.nnz,
                "multiply_adds": m.many.multiply_adds,
                "kinds": {"one_sample": m.one.kind, "several_samples": m.many.kind},
                "map_bytes": max(m.one.map_bytes, m.many.map_bytes),
            }
            for m in multiplications
        ],
    }


def print_product_report(facts: dict[str, Any]) -> None:
    """The report as tables."""
    unchecked = "" if facts["checksum"] else " (SHA-256 not compared: --checksum, or verify)"
    print(f"planned product  {facts['file']}{unchecked}\n")
    rows = [
        (
            f"factor {number}",
            f"{f['shape'][0]}×{f['shape'][1]}",
            quantity(f["nnz"]),
            f"{f['sparsity']:.5f}",
            "reordered at each call" if f["reordered"] else "in the order of the pattern",
        )
        for number, f in enumerate(facts["factors"], 1)
    ]
    print_table(("", "shape", "nnz", "sparsity", "values"), rows, "<>>><")
    print()
    products = [
        (
            f"product {number}",
            f"{p['left']} · {p['right']}",
            f"{p['shape'][0]}×{p['shape'][1]}",
            quantity(p["nnz"]),
            quantity(p["multiply_adds"]),
            p["kinds"]["one_sample"],
            p["kinds"]["several_samples"],
            in_bytes(p["map_bytes"]),
        )
        for number, p in enumerate(facts["products"], 1)
    ]
    head = ("", "operands", "shape", "nnz", "multiply-adds", "one sample", "several samples", "maps")
    print_table(head, products, "<<>>><<>")
