"""How large products are, counted before they are made or read off planned ones."""
