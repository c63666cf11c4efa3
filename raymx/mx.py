"""``import raymx.mx`` in a script: its mxnet with what `raymx.launch.guarded` mends.

`raymx.launch` sees the line, and starts servers that unpickle nothing. Under another launcher, Gluon's trainer can
compress on a dist store, and nothing else changes.
"""

import mxnet

from raymx.launch import guarded

guarded.apply(mxnet)
