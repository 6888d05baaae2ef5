"""The paper's figures, and pictures."""
