"""The built-in cells. Their texts lie in `raw_kernels/cells/`, so that none of them needs SymPy to run.

`s.h` is the state before a step, `x` and `u` are W_ih x + b_ih and W_hh h + b_hh by gate.
"""

from __future__ import annotations

from typing import Any

from bppsa_cupy.cells.definition import Definition
from bppsa_cupy.cells.functions import bounded_sqrt, exp, expm1, relu, sigmoid, tanh


def rnn_tanh(x: Any, u: Any, s: Any, p: Any) -> Any:
    """h' = tanh(W_ih x + W_hh h) (Elman 1990)."""
    return {"h": tanh(x.h + u.h)}


def rnn_relu(x: Any, u: Any, s: Any, p: Any) -> Any:
    """h' = max(W_ih x + W_hh h, 0)."""
    return {"h": relu(x.h + u.h)}


def gru(x: Any, u: Any, s: Any, p: Any) -> Any:
    """PyTorch's GRU (Cho et al. 2014, with the reset gate after the recurrent product)."""
    r, z = sigmoid(x.r + u.r), sigmoid(x.z + u.z)
    n = tanh(x.n + r * u.n)
    return {"h": n + z * (s.h - n)}


def lstm(x: Any, u: Any, s: Any, p: Any) -> Any:
    """Long short-term memory with a forget gate (Hochreiter & Schmidhuber 1997, Gers et al. 2000)."""
    i, f, o = sigmoid(x.i + u.i), sigmoid(x.f + u.f), sigmoid(x.o + u.o)
    c = f * s.c + i * tanh(x.g + u.g)
    return {"h": o * tanh(c), "c": c}


def ctrnn(x: Any, u: Any, s: Any, p: Any) -> Any:
    """Leaky units: h' = (1 - α) h + α tanh(W_ih x + W_hh h), α learnt, one a unit; Euler's step of a
    continuous-time network (Funahashi & Nakamura 1993)."""
    return {"h": s.h + p.alpha * (tanh(x.h + u.h) - s.h)}


def mgu(x: Any, u: Any, s: Any, p: Any) -> Any:
    """The minimal gated unit (Zhou et al. 2016), whose forget gate is reset gate too. Theirs multiplies h
    before the product W (f h), which couples units; here, as in PyTorch's GRU, it multiplies W h."""
    f = sigmoid(x.f + u.f)
    n = tanh(x.n + f * u.n)
    return {"h": s.h + f * (n - s.h)}


def ugrnn(x: Any, u: Any, s: Any, p: Any) -> Any:
    """The update-gate network: h' = g h + (1 - g) tanh(W_ih x + W_hh h) (Collins et al. 2017)."""
    g, c = sigmoid(x.g + u.g), tanh(x.c + u.c)
    return {"h": c + g * (s.h - c)}


def peephole_lstm(x: Any, u: Any, s: Any, p: Any) -> Any:
    """An LSTM whose gates see the cell, i and f the former one and o the new one, each through one weight a
    unit (Gers & Schmidhuber 2000)."""
    i, f = sigmoid(x.i + u.i + p.ci * s.c), sigmoid(x.f + u.f + p.cf * s.c)
    c = f * s.c + i * tanh(x.g + u.g)
    return {"h": sigmoid(x.o + u.o + p.co * c) * tanh(c), "c": c}


def mingru(x: Any, u: Any, s: Any, p: Any) -> Any:
    """minGRU (Feng et al. 2024, section 3.1): z = σ(x_z), h' = (1 - z) h + z x_h."""
    return {"h": s.h + sigmoid(x.z) * (x.h - s.h)}


def mingru_positive(x: Any, u: Any, s: Any, p: Any) -> Any:
    """minGRU whose candidates are g(x_h), g being x + 1/2 from 0 on and σ(x) below (appendix B.3), as a scan
    of logarithms takes them."""
    return {"h": s.h + sigmoid(x.z) * (_positive(x.h) - s.h)}


def minlstm(x: Any, u: Any, s: Any, p: Any) -> Any:
    """minLSTM (Feng et al. 2024, section 3.2): f = σ(x_f) and i = σ(x_i) over their sum, h' = f h + i x_h."""
    return {"h": x.h + _kept_share(x.f, x.i) * (s.h - x.h)}


def minlstm_positive(x: Any, u: Any, s: Any, p: Any) -> Any:
    """minLSTM whose candidates are g(x_h), as those of `mingru_positive`."""
    candidate = _positive(x.h)
    return {"h": candidate + _kept_share(x.f, x.i) * (s.h - candidate)}


def sru(x: Any, u: Any, s: Any, p: Any) -> Any:
    """SRU whose gates read no state (Lei et al. 2018, equations 3 to 6 without v): c' = f c + (1 - f) x_c,
    h = r c' + (1 - r) x."""
    c = x.c + sigmoid(x.f) * (s.c - x.c)
    return {"h": x.skip + sigmoid(x.r) * (c - x.skip), "c": c}


def qrnn(x: Any, u: Any, s: Any, p: Any) -> Any:
    """QRNN's fo-pooling (Bradbury et al. 2017, equation 4): c' = f c + (1 - f) tanh(x_z), h = σ(x_o) c'."""
    z = tanh(x.z)
    c = z + sigmoid(x.f) * (s.c - z)
    return {"h": sigmoid(x.o) * c, "c": c}


def rglru(x: Any, u: Any, s: Any, p: Any) -> Any:
    """The real-gated linear recurrent unit (De et al. 2024, section 2.4): a = exp(rate σ(x_r)),
    h' = a h + sqrt(1 - a²) σ(x_i) x_v, rate being -8 softplus(Λ)."""
    log_a = p.rate * sigmoid(x.r)
    less = expm1(log_a)  # a - 1: 1 - a² would cancel where a is near 1
    return {"h": exp(log_a) * s.h + bounded_sqrt(-less * (2 + less)) * (sigmoid(x.i) * x.v)}


#: Below it a gate of minLSTM counts as that: its σ is the least that float32 has in normal form, nearly.
LEAST_GATE = -85


def _kept_share(f: Any, i: Any) -> Any:
    """σ(f) / (σ(f) + σ(i))"""
    import sympy

    forget, take = (sigmoid(sympy.Max(gate, LEAST_GATE)) for gate in (f, i))
    return forget / (forget + take)


def _positive(x: Any) -> Any:
    """x + 1/2 from 0 on, σ(x) below."""
    import sympy

    return sympy.Piecewise((x + sympy.Rational(1, 2), x >= 0), (sigmoid(x), True))


def _table(*definitions: Definition) -> dict[str, Definition]:
    return {definition.name: definition for definition in definitions}


#: Every built-in cell by name; gates in the order of PyTorch's weights where it has the cell.
DEFINITIONS = _table(
    Definition("rnn_tanh", ("h",), ("h",), (), rnn_tanh),
    Definition("rnn_relu", ("h",), ("h",), (), rnn_relu),
    Definition("gru", ("r", "z", "n"), ("h",), (), gru),
    Definition("lstm", ("i", "f", "g", "o"), ("h", "c"), (), lstm),
    Definition("ctrnn", ("h",), ("h",), ("alpha",), ctrnn),
    Definition("mgu", ("f", "n"), ("h",), (), mgu),
    Definition("ugrnn", ("g", "c"), ("h",), (), ugrnn),
    Definition("peephole_lstm", ("i", "f", "g", "o"), ("h", "c"), ("ci", "cf", "co"), peephole_lstm),
)

#: Every built-in linear cell by name; gates in the order of the references' weights.
LINEAR_DEFINITIONS = _table(
    Definition("mingru", ("h", "z"), ("h",), (), mingru, recurrent=()),
    Definition("mingru_positive", ("h", "z"), ("h",), (), mingru_positive, recurrent=()),
    Definition("minlstm", ("f", "i", "h"), ("h",), (), minlstm, recurrent=()),
    Definition("minlstm_positive", ("f", "i", "h"), ("h",), (), minlstm_positive, recurrent=()),
    Definition("sru", ("c", "f", "r", "skip"), ("h", "c"), (), sru, recurrent=()),
    Definition("qrnn", ("z", "f", "o"), ("h", "c"), (), qrnn, recurrent=()),
    Definition("rglru", ("r", "i", "v"), ("h",), ("rate",), rglru, recurrent=()),
)
