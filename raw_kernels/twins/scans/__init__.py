"""What the twins of scans over layers and over time share."""
