"""What a run leaves: its folder, rows, reports, the view of it."""
