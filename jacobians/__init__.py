"""Transposed Jacobians, a family of operators per file: CSR patterns from geometry, and their values."""

if __name__ != "bppsa_cupy.jacobians":
    raise ImportError("import bppsa_cupy.jacobians: a bare `jacobians` would be a second copy")
