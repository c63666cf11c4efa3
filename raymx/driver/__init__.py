"""The driver's side of a run: Ray's start, Tune's controller, the monitor, displays, the journal."""
