"""What steps and schedules cost, by models of machines."""
