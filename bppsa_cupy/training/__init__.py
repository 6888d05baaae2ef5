"""Training: loop, state, log, checkpoints, losses, optimizers."""
