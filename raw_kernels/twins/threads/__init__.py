"""Threads of twins: how many, what each does, how they wait for one another."""
