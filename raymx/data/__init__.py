"""Records: `recordio` is the format, `pipeline` brings it to the workers, `tools` make and check files."""
