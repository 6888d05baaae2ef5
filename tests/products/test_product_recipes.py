"""Programs around planned products, as users write them."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import splu

import bppsa_cupy as bp


def test_interior_point_steps_of_a_linear_program() -> None:
    """Minimise c·x with A x = b, x ≥ 0 (Mehrotra 1992, without the corrector): A D Aᵀ in every step."""
    rng = np.random.default_rng(0)
    rows, columns = 20, 50
    a = sp.csr_array(rng.standard_normal((rows, columns)) * (rng.random((rows, columns)) < 0.2))
    a = sp.csr_array(a + sp.eye_array(rows, columns))
    b, c = a @ rng.random(columns), a.T @ rng.standard_normal(rows) + rng.random(columns)
    plan = bp.plan_gram(a.T, weights=True, out_format="csc")
    weights, values = np.ones(columns), np.empty(plan.pattern.nnz)
    evaluate = plan.bind(a.data, weights, out=values)
    evaluate()
    order = reverse_cuthill_mckee(sp.csr_array(plan.to_scipy(values)), symmetric_mode=True)
    numbered = plan.to_scipy(np.arange(1.0, values.size + 1))[order][:, order].tocsc()
    numbered.sort_indices()
    places = numbered.data.astype(int) - 1
    x, s, y = np.ones(columns), np.ones(columns), np.zeros(rows)
    for _ in range(60):
        dual, gap = c - a.T @ y - s, x @ s / columns
        if gap < 1e-11:
            break
        np.divide(x, s, out=weights)
        evaluate()  # A D Aᵀ, D = diag(x / s)
        numbered.data = values[places]
        factors = splu(numbered, permc_spec="NATURAL", diag_pivot_thresh=0, options={"SymmetricMode": True})
        target = 0.1 * gap / s - x
        right = b - a @ x - a @ (target - weights * dual)
        by_y = np.empty(rows)
        by_y[order] = factors.solve(right[order])
        by_s = dual - a.T @ by_y
        by_x = target - weights * by_s
        step = [
            min(1.0, 0.99 * np.min(-now[move < 0] / move[move < 0], initial=np.inf))
            for now, move in ((x, by_x), (s, by_s))
        ]
        x, y, s = x + step[0] * by_x, y + step[1] * by_y, s + step[1] * by_s
    expected = linprog(c, A_eq=a.toarray(), b_eq=b)
    np.testing.assert_allclose(c @ x, expected.fun, rtol=1e-8)
    np.testing.assert_allclose(a @ x, b, rtol=1e-8, atol=1e-8)
