"""Scripts that run unchanged: what MXNet's launch.py does, on Ray.

    python -m raymx.launch -n 3 -s 2 python train.py --kv-store dist_sync

``script`` says what is to run, ``options`` reads it from a command line; ``commands``, ``environment``, ``bundles``,
``outcome``, ``log_lines``, ``epochs``, ``resume``, ``points`` and ``table`` are pure. ``role`` is the Ray actor of one
role, whose command runs under ``supervisor``; ``generation`` has all roles of one KVStore; ``trial`` starts it again
where that is wished, and ``driver`` is the command from its first line to its last, with ``records`` for its files.
``hook`` and ``guarded`` are what happens inside of a script's process, ``guard_server`` is a server that unpickles
nothing.
"""
