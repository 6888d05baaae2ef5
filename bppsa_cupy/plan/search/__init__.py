"""The search for the schedule with the least predicted time."""
