"""MXNet's KVStore: hosting, optimizer, state, what travels, schedule and loss scale."""
