"""Cold reads from a real NFS server.

Steady state is what counts: the DRAM tier is full, and each read makes its room by evicting another
file, as in production; memory that the machine hands out for the first time costs more than all the
rest on a virtual machine and is a line of its own. No file is read twice through one mount, so
neither the tier nor the kernel nor what the replacement learns can serve a part of it.
"""
import os
import shutil

from machine import GIB, MIB, Mount, Server, SlowNetwork, cpu, drop, measured, program, read_file, \
    spent_by_children

WARM = 3
RATE = 500_000_000  # bytes a second of the slow network


class Lane:
    """One mount and its server: cold reads, raw reads, and the CPU that both take."""

    def __init__(self, server, mount, size):
        self.server, self.mount, self.size, self.next = server, mount, size, 0
        self.spent = {}
        for _ in range(WARM):
            self.read("read")
        self.spent = {}

    def _account(self, who, action):
        before, daemon, served = spent_by_children(), cpu(self.mount.pid), cpu(self.server.pid)
        rate = action() / 1e9
        spent = self.spent.setdefault(who, {"bytes": 0})
        spent["bytes"] += self.size
        spent["reader"] = spent.get("reader", 0) + spent_by_children() - before
        for name, s in cpu(self.mount.pid).items():
            spent[name] = spent.get(name, 0) + s - daemon.get(name, 0)
        spent["server"] = spent.get("server", 0) + sum(cpu(self.server.pid).values()) - \
            sum(served.values())
        return rate

    def read(self, way):
        path = self.mount.file(self.next)
        os.stat(path)  # the manifest is not part of the measurement
        # The kernel's pages of the last file become those of this one.
        drop(self.mount.file(max(self.next - 1, 0)))
        self.next += 1
        return self._account(way, lambda: read_file(way, path))

    def raw(self, url):
        return self._account("raw", lambda: _raw(url))

    def note(self, table):
        """CPU is less at the mercy of the neighbours than time."""
        for who, spent in self.spent.items():
            gib = spent.pop("bytes") / GIB
            each = ", ".join(f"{n} {s / gib:.2f}" for n, s in spent.items() if s / gib >= 0.005)
            table.note(f"{who}: CPU s/GiB {sum(spent.values()) / gib:.2f}: {each}")
        self.spent = {}


def _raw(url):
    return measured(program("tests/raw-nfs-read"), "--connections", "2", "--depth", "8", "--json",
                    url, "raw.bin")


def _fresh(bench, table, server, rounds):
    pairs = []
    for i in range(rounds):
        with Mount(bench, server.url, "--dram", "64GiB") as m:
            pairs.append((read_file("read", m.file(i)) / 1e9, _raw(server.url) / 1e9))
    table.pairs("cold NFS read, memory never used before / raw", pairs, "GB/s", None)


def nfs(bench, table, rounds, scale):
    size = 256 * MIB // scale
    dram = ("--dram", str(2 * size))
    src = bench.weights("source", WARM + 2 * rounds, size)
    server = Server(bench)
    bench.import_tree(src, "bench/w@1", server.url)
    shutil.copyfile(f"{src}/w0.bin", f"{server.export}/raw.bin")
    shutil.rmtree(src)
    os.sync()
    _raw(server.url)

    with Mount(bench, server.url, *dram) as m:
        lane = Lane(server, m, size)
        pairs = table.in_turn(rounds, lambda: lane.read("read"), lambda: lane.raw(server.url))
        table.pairs("cold NFS read / raw reader, without NVMe", pairs, "GB/s", 0.5)
        lane.note(table)
    with Mount(bench, server.url, *dram) as m:
        lane = Lane(server, m, size)
        pairs = table.in_turn(rounds, lambda: lane.read("mmap"), lambda: lane.read("read"))
        table.pairs("cold mmap walk / cold read", pairs, "GB/s", 0.85)
        lane.note(table)
    tier = bench.folder("nvme")
    with Mount(bench, server.url, *dram, "--nvme", f"{tier},{64 * size}") as m:
        lane = Lane(server, m, size)
        pairs = table.in_turn(rounds, lambda: lane.read("read"), lambda: lane.raw(server.url))
        table.pairs("cold NFS read / raw reader, with write-behind", pairs, "GB/s", 0.4)
        lane.note(table)
    shutil.rmtree(tier)
    _fresh(bench, table, server, min(rounds, 3))
    with SlowNetwork(RATE):
        server.restart()
        with Mount(bench, server.url, *dram) as m:
            lane = Lane(server, m, size)
            pairs = table.in_turn(rounds, lambda: lane.read("read"), lambda: lane.raw(server.url))
            table.pairs("cold NFS read at 500 MB/s / that rate", [(o, RATE / 1e9) for o, _ in pairs],
                        "GB/s", 0.95)
            table.pairs("cold NFS read at 500 MB/s / raw reader there", pairs, "GB/s", None)
            lane.note(table)
