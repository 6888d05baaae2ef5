"""Values that an argument may be given and rarely is: other types, ranges and shapes.

They are texts of Python, so that a failing call can be written as a test."""

from __future__ import annotations

import decimal
import fractions
import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse


class Odd:
    """An object that says it is many things."""

    def __len__(self) -> int:
        return -1

    def __index__(self) -> int:
        raise TypeError("no index after all")

    def __repr__(self) -> str:
        return "Odd()"


def circle() -> list[Any]:
    """A list that holds itself."""
    items: list[Any] = []
    items.append(items)
    return items


#: What the texts may name, beside `given`, the arguments that the call takes.
NAMES = {
    "np": np,
    "sparse": scipy.sparse,
    "Path": Path,
    "Odd": Odd,
    "circle": circle,
    "Fraction": fractions.Fraction,
    "Decimal": decimal.Decimal,
    "StringIO": io.StringIO,
    "nan": math.nan,
    "inf": math.inf,
    "as_strided": np.lib.stride_tricks.as_strided,
}
VALUES = (
    *("None", "True", "False", "0", "1", "2", "3", "-1", "-2", "7", "10**3", "2**31", "2**40", "2**62"),
    *("2**63", "2**64", "-(2**63)", "10**30", "0.0", "-0.0", "0.5", "1.0", "1.5", "1e-300", "1e308", "-1.0"),
    *("nan", "inf", "-inf", "1j", "''", "'x'", "'same'", "'auto'", "'host'", "'cuda'", "'None'", "'0'"),
    *("'zeros'", "'mean'", "'ä' * 50", r"'\0'", r"'a\nb'", "b'x'", "'text ' * 10**4", "'\\ud7ff'"),
    *("()", "(1,)", "(2, 2)", "(1, 2, 3)", "(0, 0)", "(-1, 1)", "(1.5, 2)", "(None,)", "('a', 'b')"),
    *("(2**40, 2**40)", "[0] * 5000", "((1, 2), (3, 4))", "[None]", "range(10**15)", "{'x': {}}", "{1: 2}"),
    *("np.int64(2)", "np.uint8(200)", "np.int8(-1)", "np.float32(0.5)", "np.float16(2)", "np.bool_(True)"),
    *("np.str_('x')", "np.datetime64('2020-01-01')", "int", "len", "...", "NotImplemented", "range(3)"),
    *(
        "slice(1)",
        "slice(0, 10**30, -1)",
        "slice('a', 1.5)",
        "list()",
        "dict()",
        "set()",
        "object()",
        "Odd()",
    ),
    *("circle()", "[1]", "[1, 2]", "[[1], [1, 2]]", "{'a': 1}", "iter([1, 2])", "(k for k in range(2))"),
    *("bytearray(3)", "memoryview(b'abc')", "Path('nowhere')", "sparse.eye_array(3, format='csr')"),
    *("sparse.coo_array((2, 3))", "StringIO('x')", "Fraction(1, 2)", "Decimal('0.5')", "np.array(3)"),
    *("np.array(2.5)", "np.zeros(0)", "np.zeros((0, 3))", "np.zeros((2, 3))", "np.ones((2, 3), 'f4')"),
    *("np.ones((1,) * 5, 'f4')", "np.array([1, 2])", "np.array([2**63], 'u8')", "np.array(['a'])"),
    *("np.array([None, 1], object)", "np.array([1 + 2j])", "np.array([True, False])", "np.array('x')"),
    *("np.ma.masked_array([1.0, 2.0], [True, False])", "np.array(['2020'], 'datetime64[Y]')"),
    *("np.zeros(2, [('a', 'i4')])", "np.full((2, 3), nan, 'f4')", "np.broadcast_to(np.float32(1), (2, 3))"),
    *("np.ones((4, 6), 'f4')[::2, ::2]", "np.ones((2, 3), '>f4')", "np.ones((2, 3), 'f2')"),
    *(
        "np.ones(2, np.longdouble)",
        "as_strided(np.zeros(1, 'f4'), (2**40,), (0,))",
        "np.matrix([[1.0, 2.0]])",
    ),
)
#: Characters that a text's are replaced by.
LETTERS = ":,.-+_e0129ainf\N{ARABIC-INDIC DIGIT FOUR} \0/\\"


def near(rng: np.random.Generator, place: str, value: Any) -> str:
    """A value like the one at `place`, which is taken: of another type, size, shape, order or layout."""
    return str(rng.choice(_like(rng, place, value)))


def _like(rng: np.random.Generator, place: str, value: Any) -> list[str]:
    if isinstance(value, (bool, np.bool_)):
        return [f"int({place})", f"str({place})", f"np.bool_({place})", f"float({place})", f"not {place}"]
    if isinstance(value, (int, float)):
        ways = (
            "{} + 1",
            "{} - 1",
            "-{}",
            "{} * 2",
            "{} * 1000",
            "float({})",
            "np.int16({})",
            "str({})",
            "[{}]",
        )
        more = "np.array({})", "np.float64({})", "{} + 0.5", "np.array([{}])", "Fraction({})", "{} * 10**30"
        return [way.format(place) for way in ways + more]
    if isinstance(value, np.ndarray):
        ways = [
            *(f"[{way}]" for way in (":0", ":1", "..., None", "None", "::-1")),
            *(".ravel()", ".T", ".tolist()", " * 0 + nan", " * 1e300"),
            *(f".astype({kind!r})" for kind in ("f8", "f4", "f2", "i4", "u1", "c8", "O", "?", ">f4", "U8")),
        ]
        others = [f"{name}({place})" for name in ("np.asfortranarray", "np.ma.masked_array", "list")]
        more = [f"np.repeat({place}, 2, -1)"] if value.ndim else []
        return (
            [place + way for way in ways] + others + more + ([f"-{place}"] if value.dtype.kind != "b" else [])
        )
    if isinstance(value, (list, tuple)):
        ways = (
            "{}[:-1]",
            "[*{0}, *{0}]",
            "[*{}, None]",
            "tuple({})",
            "list({})",
            "iter({})",
            "{}[::-1]",
            "[{}]",
        )
        found = [way.format(place) for way in ways]
        if value:
            at = int(rng.integers(len(value)))
            other = _other(rng, f"{place}[{at}]", value[at])
            found += [f"[*{place}[:{at}], {other}, *{place}[{at + 1}:]]"] * 4
        return found
    if isinstance(value, str):
        at = int(rng.integers(len(value))) if value else 0
        letter = LETTERS[rng.integers(len(LETTERS))]
        changed = repr(value[:at] + letter + value[at + 1 :])
        ways = "{}.upper()", "{}[:-1]", "{} + ' '", "{}.encode()", "[{}]", "np.str_({})", "{} * 100"
        return [way.format(place) for way in ways] + [changed] * 5
    if isinstance(value, dict) and value:
        name = list(value)[rng.integers(len(value))]
        other = _other(rng, f"{place}[{name!r}]", value[name])
        less = f"{{k: v for k, v in {place}.items() if k != {name!r}}}"
        more = f"{{**{place}, 'x': 1}}", f"list({place}.items())"
        return [f"{{**{place}, {name!r}: {other}}}"] * 4 + [less, *more]
    return [draw(rng)]


def _other(rng: np.random.Generator, place: str, value: Any) -> str:
    return near(rng, place, value) if rng.integers(2) else draw(rng)


def draw(rng: np.random.Generator) -> str:
    """Any of VALUES."""
    return VALUES[rng.integers(len(VALUES))]


def changed(given: dict[str, Any], texts: dict[str, str]) -> dict[str, Any]:
    """The arguments `given`, those of `texts` in their place."""
    return {**given, **{name: eval(text, {**NAMES, "given": given}) for name, text in texts.items()}}
