"""Which trials a run has: the space, the plan, trial schedulers, search, trial records."""
