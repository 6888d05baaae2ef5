"""What the twins of operators, dropout and optimizers share."""
