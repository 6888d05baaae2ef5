"""Back-propagation as a parallel scan over sparse transposed Jacobians (BPPSA)."""
