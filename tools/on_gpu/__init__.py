"""Programs that `make gpu` runs: each prints a JSON object a line as soon as it knows it."""
