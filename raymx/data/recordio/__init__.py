"""The RecordIO format, byte for byte as MXNet's: framing, records, indexes, sets of files. No Ray, no MXNet."""
