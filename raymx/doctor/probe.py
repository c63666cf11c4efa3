"""What is done on each node of a cluster, in one process there. It travels by its source: a node may have no raymx."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from raymx.doctor.facts import NodeFacts, Space, collect
from raymx.doctor.storage_trial import StorageTrial

CONNECT_TIMEOUT_S = 5.0
_AT_ONCE = 32  # connections
_SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of an interface


class Probe:
    """One node's part. Every method ends by itself within seconds, but for `facts`, which may take a minute."""

    def __init__(self, name: str, storage: str | None) -> None:
        self._name = name
        self._storage = StorageTrial(storage) if storage else None
        self._listener: socket.socket | None = None

    def facts(self, child: str) -> NodeFacts:
        from ray._private import worker  # not raymx._ray: this node may have no raymx

        return collect(child, worker._global_node.get_temp_dir_path())

    def now(self) -> float:
        return time.time()

    # Connections

    def listen(self, address: str) -> tuple[int, str]:
        """Open a port on the node's address, as a KVStore role does: (port, interface), or (0, what went wrong)."""
        try:
            self._listener = socket.create_server((address, 0), backlog=128)
        except OSError as error:
            present = ", ".join(f"{name} {own}" for name, own in interfaces().items())
            return 0, f"{error.strerror or error}; its interfaces are {present or 'not known'}"
        threading.Thread(target=self._serve, args=(self._listener,), daemon=True).start()
        return (
            int(self._listener.getsockname()[1]),
            next((name for name, own in interfaces().items() if own == address), ""),
        )

    def _serve(self, listener: socket.socket) -> None:
        """Say this node's name to whoever connects."""
        with contextlib.suppress(OSError):  # the process ends
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.sendall(self._name.encode())

    def connect(self, targets: Sequence[tuple[str, str, int]]) -> Mapping[str, str]:
        """Connect to each (name, address, port): what went wrong by name, "" where nothing did."""
        if not targets:
            return {}
        with ThreadPoolExecutor(min(len(targets), _AT_ONCE)) as pool:
            return dict(zip((name for name, _, _ in targets), pool.map(_connect, targets), strict=True))

    # The storage path

    def write(self, name: str) -> tuple[str, Space | None]:
        assert self._storage is not None
        return self._storage.write(name), self._storage.disk

    def sees(self, names: Sequence[str]) -> list[str]:
        assert self._storage is not None
        return self._storage.sees(names)

    def remove_files(self) -> None:
        assert self._storage is not None
        self._storage.remove_files()

    def remove_folders(self) -> None:
        assert self._storage is not None
        self._storage.remove_folders()


def _connect(target: tuple[str, str, int]) -> str:
    name, address, port = target
    try:
        with socket.create_connection((address, port), CONNECT_TIMEOUT_S) as connection:
            connection.settimeout(CONNECT_TIMEOUT_S)
            heard = connection.makefile("rb").read().decode(errors="replace")
    except TimeoutError:
        return f"no answer within {CONNECT_TIMEOUT_S:.0f} s"
    except OSError as error:
        return error.strerror or str(error)
    return "" if heard == name else "somebody else answered at this address"


def interfaces() -> dict[str, str]:
    """The IPv4 address of each network interface that has one."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has none
                answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found[name] = socket.inet_ntoa(answer[20:24])
    return found
