"""Submitted runs, watched from outside: clients, notebooks."""
