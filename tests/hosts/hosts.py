"""Hosts made of Linux namespaces, on one machine: each has its own network, processes, /tmp, home, /dev/shm and name.

    with lan(tmp_path, 2, shared=results) as (head, other):
        head.run([sys.executable, "-c", "print('hello')"], timeout_s=10)
        other.cut()

Their network cards are joined by a bridge in a namespace of its own, so nothing is seen of it from outside. All other
files are the machine's own. It needs root, and ends with the process that made it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NETWORK = "10.213.0"
CARD = "eth0"
BRIDGE = "switch0"
BURST_BYTES = 128 * 1024  # more than one packet of the card's, which may have 64 KiB: tbf cuts longer ones up
_ALL_SPACES = 0x20000 | 0x20000000 | 0x40000000 | 0x4000000 | 0x8000000  # CLONE_NEW: NS, PID, NET, UTS, IPC
_PARENT_DEATH = 1  # prctl's PR_SET_PDEATHSIG
_START_S, _END_S = 20.0, 20.0

# Becomes a host's init, which ends with its standard input. Orphans that end vanish, since their signal is ignored.
_INIT = """
set -e
mount --make-rprivate /
{mounts}
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t proc proc /proc
hostname {name}
ip link set lo up
exec '{python}' -I -c '
import signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("ready", flush=True)
sys.stdin.read()'
"""


@functools.cache
def why_not() -> str | None:
    """Why there can be no hosts here; None when there can. It makes two and lets them talk."""
    if os.geteuid() != 0:
        return "hosts made of namespaces need root"
    for program in ("ip", "unshare", "mount", "tc"):
        if not shutil.which(program):
            return f"hosts made of namespaces need the program {program}"
    try:
        with tempfile.TemporaryDirectory() as scratch, lan(Path(scratch), 2) as (one, other):
            one.run(
                [
                    sys.executable,
                    "-c",
                    f"import socket; s = socket.socket(); s.settimeout(5); "
                    f"assert s.connect_ex(('{other.address}', 9)) == 111",
                ],
                timeout_s=30,
            )
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        return f"namespaces are not permitted here: {error}"
    return None


class Host:
    """One host. ``home`` is its home folder as seen from outside, ``name`` is also found in the /etc/hosts of all."""

    def __init__(self, name: str, address: str, folder: Path, switch: int) -> None:
        self.name, self.address, self.home = name, address, folder / "home"
        self._folder, self._switch, self._port = folder, switch, f"port-{name}"
        self._boot: subprocess.Popen[bytes] | None = None
        self._relay: subprocess.Popen[bytes] | None = None
        self._init, self._rate_mbit = 0, 0.0
        self.network = self._processes = "none yet"  # its namespaces

    # What runs in it

    def popen(
        self, argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path = ROOT, **options: Any
    ) -> subprocess.Popen[Any]:
        """Start a command. SIGINT and SIGTERM sent to the result reach it; killing the result kills it.

        ``env`` is added to this process's environment, which lacks what only concerns this process's own Ray.
        """
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "TMPDIR"))}
        home = {"HOME": str(Path.home()), "HOSTNAME": self.name}
        command = [sys.executable, "-I", __file__, str(self._init), str(cwd), *map(str, argv)]
        return subprocess.Popen(command, env=inherited | home | dict(env or {}), **options)

    def run(
        self, argv: Sequence[str | Path], timeout_s: float, env: Mapping[str, str] | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; its output as text. Raises RuntimeError with the output, TimeoutExpired."""
        with self.popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                out, err = process.communicate(timeout=timeout_s)
            except BaseException:
                process.kill()  # else leaving the block waits for it
                raise
        if check and process.returncode:
            raise RuntimeError(f"{self.name}: {' '.join(map(str, argv))} gave {process.returncode}\n{out}\n{err}")
        return subprocess.CompletedProcess(list(map(str, argv)), process.returncode, out, err)

    def processes(self) -> dict[int, str]:
        """What runs in it besides its init: ids as seen from outside, with titles."""
        return {pid: title for pid, title in _in_spaces({self._processes}).items() if pid != self._init and title}

    def kill(self) -> None:
        """A power cut: everything ends at once, and its card is silent."""
        if self._relay is not None:
            self._relay.kill()
            self._relay.wait()
        if self._boot is not None:
            self._boot.kill()  # which ends its init, and that everything else
            self._boot.wait()
            _wait_empty({self.network, self._processes})

    # Its link

    def cut(self) -> None:
        """Pull the cable: nobody is told."""
        self._at_switch(f"ip link set {self._port} down")

    def mend(self) -> None:
        """Put it back in."""
        self._at_switch(f"ip link set {self._port} up")

    def limit(self, rate_mbit: float) -> None:
        """So many Mbit/s in each direction; 0 for no limit."""
        self._rate_mbit = rate_mbit
        for run, card in ((self._at_switch, self._port), (self._inside, CARD)):
            run(f"tc qdisc del dev {card} root 2> /dev/null || true")
            if rate_mbit:
                run(f"tc qdisc add dev {card} root tbf rate {rate_mbit}mbit burst {BURST_BYTES} latency 100ms")

    def delay(self, ms: float) -> None:
        """So many ms in each direction, by `delayed_link`; 0 for a plain cable. Connections outlast the change."""
        self._unplug()
        if ms:
            self._plug_relay(ms)
        else:
            self._plug()
        self.limit(self._rate_mbit)

    # How it is made

    def start(self, hosts: Mapping[str, str], keep: Sequence[Path]) -> None:
        """Make it; ``hosts`` are the names and addresses of all, ``keep`` folders that are the same in all."""
        script = _INIT.format(mounts="\n".join(self._mounts(hosts, keep)), name=self.name, python=sys.executable)
        spaces = ("--mount", "--pid", "--net", "--uts", "--ipc")
        self._boot = _start(self.name, ["unshare", *spaces, "--fork", "--kill-child", "sh", "-c", script])
        self._init = int(Path(f"/proc/{self._boot.pid}/task/{self._boot.pid}/children").read_text())
        self.network, self._processes = (os.readlink(f"/proc/{self._init}/ns/{space}") for space in ("net", "pid"))
        self._plug()

    def _mounts(self, hosts: Mapping[str, str], keep: Sequence[Path]) -> list[str]:
        """Shell commands for a private /tmp and home, in which the kept folders are found under their own paths."""
        into, over = [], []
        places = zip(_own_places(), (self._folder / "tmp", self.home), strict=True)
        for place, own in sorted(places, key=lambda pair: pair[0] in self._folder.parents):  # what hides it is last
            own.mkdir(parents=True)
            for path in (path for path in keep if place in path.parents):
                (own / path.relative_to(place)).mkdir(parents=True, exist_ok=True)
                into.append(f"mount --rbind '{path}' '{own / path.relative_to(place)}'")
            over.append(f"mount --rbind '{own}' '{place}'")
        (self._folder / "tmp").chmod(0o1777)
        names = "".join(f"{address} {name}\n" for name, address in hosts.items())
        # With no name server, names that only the internet knows are unknown at once.
        for file, text in (("hosts", f"127.0.0.1 localhost\n{names}"), ("resolv.conf", "")):
            (self._folder / file).write_text(text)
            into.append(f"mount --bind '{self._folder / file}' /etc/{file}")
        return [*into, *over]

    def _plug(self) -> None:
        self._at_switch(f"ip link add {self._port} type veth peer name {CARD} netns {self._init}")
        self._settle()

    def _plug_relay(self, ms: float) -> None:
        script = Path(__file__).with_name("delayed_link.py")
        command = [
            *_enter(self._switch, "net"),
            sys.executable,
            "-I",
            str(script),
            self._port,
            CARD,
            str(self._init),
            str(ms),
        ]
        self._relay = _start(f"the delay of {self.name}", command)
        self._settle()

    def _settle(self) -> None:
        self._at_switch(f"ip link set {self._port} master {BRIDGE} && ip link set {self._port} up")
        hardware = f"02:00:00:00:00:{int(self.address.rpartition('.')[2]):02x}"  # the same after each change
        self._inside(
            f"ip link set {CARD} address {hardware} && ip address add {self.address}/24 dev {CARD} && "
            f"ip link set {CARD} up && ip route add default dev {CARD}"
        )

    def _unplug(self) -> None:
        if self._relay is not None:
            self._relay.kill()
            self._relay.wait()
            self._relay = None
        else:
            self._at_switch(f"ip link del {self._port}")

    def _at_switch(self, command: str) -> None:
        _shell(self._switch, command)

    def _inside(self, command: str) -> None:
        _shell(self._init, command)


@contextlib.contextmanager
def lan(scratch: Path, count: int, shared: Path | None = None) -> Iterator[list[Host]]:
    """So many hosts, host1, host2, ..., whose own folders lie in ``scratch``; ``shared`` is the same folder in all.

    At the end all that runs in them is ended. Raises RuntimeError when they cannot be made, or something is left.
    """
    hosts: list[Host] = []
    bridge = f"ip link add {BRIDGE} type bridge && ip link set {BRIDGE} up && echo ready && exec cat > /dev/null"
    switch = _start("the bridge", ["unshare", "--net", "sh", "-c", bridge])
    try:
        addresses = {f"host{i + 1}": f"{NETWORK}.{i + 1}" for i in range(count)}
        hosts += [Host(name, address, scratch / name, switch.pid) for name, address in addresses.items()]
        for host in hosts:
            host.start(addresses, _kept(shared))
        yield hosts
    finally:
        for host in hosts:
            host.kill()
        switch.kill()
        switch.wait()


def _kept(shared: Path | None) -> list[Path]:
    """What of /tmp and the home all hosts need: Python, its packages, this checkout, the shared folder."""
    wanted = [Path(sys.prefix), Path(sys.base_prefix), ROOT, *(Path(path) for path in sys.path if path), shared]
    found = {path.absolute() for path in wanted if path is not None and path.is_dir()} - set(_own_places())
    return sorted(path for path in found if not found & set(path.parents))


def _start(what: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
    """A process that lives as long as its standard input, once it has said that it is ready."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    if process.stdout.readline() == b"ready\n":
        return process
    process.kill()
    raise RuntimeError(f"{what} did not start: {process.communicate()[1].decode().strip()}")


def _own_places() -> tuple[Path, Path]:
    return Path("/tmp"), Path.home()


def _enter(pid: int, *spaces: str) -> list[str]:
    return ["nsenter", f"--target={pid}", *(f"--{space}" for space in spaces)]


def _shell(pid: int, command: str) -> None:
    """Run a command in the network of a process, with this machine's own files."""
    done = subprocess.run([*_enter(pid, "net"), "sh", "-c", command], capture_output=True, text=True, timeout=_START_S)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr.strip()}")


def _in_spaces(spaces: set[str]) -> dict[int, str]:
    """Processes in any of these namespaces, with their titles; "" for those that are ending."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if spaces & {os.readlink(folder / "ns" / space) for space in ("pid", "net")}:
                found[int(folder.name)] = (
                    (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                )
    return found


def _wait_empty(spaces: set[str]) -> None:
    deadline = time.monotonic() + _END_S
    while left := _in_spaces(spaces):
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes are left in hosts that have ended: {left}")
        time.sleep(0.05)


def _enter_and_run(init: int, cwd: str, argv: list[str]) -> int:
    """What `Host.popen` starts: a command in a host, whose signals and exit code are this process's own."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.pidfd_open(init)
    if libc.setns(descriptor, _ALL_SPACES):
        raise OSError(ctypes.get_errno(), "setns")
    os.close(descriptor)
    child = os.fork()  # only children are in the other process namespace
    if not child:
        os.setsid()  # Ctrl-C in a terminal reaches it once, from this process
        libc.prctl(_PARENT_DEATH, signal.SIGKILL)
        os.chdir(cwd)
        os.execvp(argv[0], argv)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(child, number))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(_enter_and_run(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
