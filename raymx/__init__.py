"""raymx: elastic MXNet experiments on Ray. Importing it imports neither mxnet nor ray."""

__version__ = "0.1.0"
