"""Words for people. Pure."""
