"""Checkpoints: the three files of one, those within an epoch, and the float32 masters in them."""
