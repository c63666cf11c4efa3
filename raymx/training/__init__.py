"""In a worker: the context, the loop, nets, precision, the meter."""
