"""The experiment file: schema, loading, rules, sizing, the user's own code. Pure but for reading files."""
