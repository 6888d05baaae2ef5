"""What `make mutants` does: small faults put into the code, each of which a test must see."""
