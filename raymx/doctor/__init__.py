"""``python -m raymx.doctor``: what would stop a run on this machine or cluster, and how to put it right."""
