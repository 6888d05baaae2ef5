"""Cells whose units see the input and their own former states, and some whose gates are recurrent in part;
beside each the same step in PyTorch's operations."""

from __future__ import annotations

import sympy
import torch

import bppsa_cupy as bp

sigmoid, tanh = bp.cells.sigmoid, sympy.tanh


def turning(x, u, s, p):
    """Affine in two states that turn into one another."""
    a = sigmoid(x.a)
    return {"h": a * s.h - p.w * s.c + x.v, "c": p.w * s.h + a * s.c + (1 - a) * x.v}


def turning_of_torch(x, u, s, p):
    a = torch.sigmoid(x[0])
    h, c = s
    return a * h - p["w"] * c + x[1], p["w"] * h + a * c + (1 - a) * x[1]


def averages(x, u, s, p):
    """Affine in two averages, one of the other, and in what is put out of both."""
    fast = s.fast + sigmoid(x.f) * (x.v - s.fast)
    slow = s.slow + p.rate * (fast - s.slow)
    return {"h": tanh(x.o) * (fast - slow) + 0.1 * s.slow, "fast": fast, "slow": slow}


def averages_of_torch(x, u, s, p):
    fast = s[1] + torch.sigmoid(x[0]) * (x[1] - s[1])
    slow = s[2] + p["rate"] * (fast - s[2])
    return torch.tanh(x[2]) * (fast - slow) + 0.1 * s[2], fast, slow


def independent(x, u, s, p):
    """IndRNN (Li et al. 2018), with tanh."""
    return {"h": tanh(x.h + p.u * s.h)}


def independent_of_torch(x, u, s, p):
    return (torch.tanh(x[0] + p["u"] * s[0]),)


def peeping(x, u, s, p):
    """Gates that read the former state, each by a weight."""
    c = x.c + sigmoid(x.f + p.f * s.c) * (s.c - x.c)
    return {"h": sigmoid(x.r + p.r * s.c) * c, "c": c}


def peeping_of_torch(x, u, s, p):
    c = x[0] + torch.sigmoid(x[1] + p["f"] * s[1]) * (s[1] - x[0])
    return torch.sigmoid(x[2] + p["r"] * s[1]) * c, c


def partly(x, u, s, p):
    """A GRU whose update gate reads the input alone; the candidate's sum stands apart."""
    z, r = sigmoid(x.z), sigmoid(x.r + u.r)
    n = tanh(x.n + r * u.n)
    return {"h": n + z * (s.h - n)}


def partly_of_torch(x, u, s, p):
    z, r = torch.sigmoid(x[0]), torch.sigmoid(x[1] + u[0])
    n = torch.tanh(x[2] + r * u[1])
    return (n + z * (s[0] - n),)


def forgetful(x, u, s, p):
    """An LSTM of which the first and the last gate alone are recurrent."""
    i, f, o = sigmoid(x.i + u.i), sigmoid(x.f), sigmoid(x.o + u.o)
    c = f * s.c + i * tanh(x.g)
    return {"h": o * tanh(c), "c": c}


def forgetful_of_torch(x, u, s, p):
    i, f, o = torch.sigmoid(x[0] + u[0]), torch.sigmoid(x[1]), torch.sigmoid(x[3] + u[1])
    c = f * s[1] + i * torch.tanh(x[2])
    return o * torch.tanh(c), c


def mixed(x, u, s, p):
    """All that a form may have: a separate gate, unit parameters, states that meet without W_hh."""
    f = sigmoid(x.f + u.f)
    c = f * s.c + (1 - f) * tanh(x.v + p.v * u.v) + p.h * s.h
    return {"h": f * c, "c": c}


MIXED = bp.Cell("mixed", gates=["f", "v"], states=["h", "c"], parameters=["v", "h"], step=mixed)

#: Of each the cell and its step in PyTorch; those of the first table have no recurrent gates.
UNITS = {
    "turning": (
        bp.Cell("turning", gates=["a", "v"], states=["h", "c"], parameters=["w"], recurrent=[], step=turning),
        turning_of_torch,
    ),
    "averages": (
        bp.Cell(
            "averages", gates=["f", "v", "o"], states=["h", "fast", "slow"], parameters=["rate"],
            recurrent=[], step=averages,
        ),
        averages_of_torch,
    ),
    "independent": (
        bp.Cell("independent", gates=["h"], states=["h"], parameters=["u"], recurrent=[], step=independent),
        independent_of_torch,
    ),
    "peeping": (
        bp.Cell(
            "peeping", gates=["c", "f", "r"], states=["h", "c"], parameters=["f", "r"], recurrent=[],
            step=peeping,
        ),
        peeping_of_torch,
    ),
}  # fmt: skip
PARTLY = {
    "partly": (
        bp.Cell("partly", gates=["z", "r", "n"], states=["h"], recurrent=["n", "r"], step=partly),
        partly_of_torch,
    ),
    "forgetful": (
        bp.Cell(
            "forgetful", gates=["i", "f", "g", "o"], states=["h", "c"], recurrent=["i", "o"], step=forgetful
        ),
        forgetful_of_torch,
    ),
}
AFFINE = ("turning", "averages")
