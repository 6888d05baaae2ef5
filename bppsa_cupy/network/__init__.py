"""Networks: architecture, passes, forward and backward."""
