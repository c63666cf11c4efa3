"""From records to the batches of a worker: order, decoding, augmentation, streams, prefetch."""
