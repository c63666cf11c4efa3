"""Command lines: their flags and how they end."""
