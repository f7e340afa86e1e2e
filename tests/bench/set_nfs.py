"""Cold reads from a real NFS server.

Steady state is what counts: the DRAM tier is full, each read makes its room by evicting another
file, as in production; memory that the machine hands out for the first time costs more than all the
rest on a virtual machine and is a line of its own. A ring of files, none of which the tier still
holds when its turn comes, gives any number of cold reads; the kernel's pages are dropped.
"""
import os
import shutil

from machine import MIB, Mount, Proxy, Server, cpu, cpu_text, drop, measured, program, read_file

FILES = 4
RATE = 500_000_000  # bytes a second of the slow network


class Ring:
    """Cold reads of one file after the other through a mount whose DRAM holds about one."""

    def __init__(self, bench, mount, size):
        self.mount, self.size, self.turn = mount, size, 0
        self.warm, self.reads, self.cpu = 0, 0, cpu(mount.pid)

    def start(self):
        """Fills the tier and forgets what that took."""
        for _ in range(FILES - 1):
            self.read("read")
        self.warm, self.reads, self.cpu = 0, 0, cpu(self.mount.pid)

    def read(self, way):
        i = self.turn % FILES
        self.turn += 1
        drop(self.mount.file(i))
        self.warm += int(self.mount.attribute(i, "resident.dram"))
        self.reads += 1
        return read_file(way, self.mount.file(i)) / 1e9

    def note(self, table):
        read = self.reads * self.size
        table.note(cpu_text(self.cpu, cpu(self.mount.pid), read))
        if self.warm > read // 50:
            table.note(f"{100 * self.warm // read} % was still in DRAM: this is not cold")


def _raw(url, name):
    return measured(program("tests/raw-nfs-read"), "--connections", "2", "--depth", "8", "--json",
                    url, name) / 1e9


def _dram(size):
    return str(size + size // 8)


def _fresh(bench, table, server, rounds):
    pairs = []
    for i in range(rounds):
        with Mount(bench, server.url, "--dram", "64GiB") as m:
            pairs.append((read_file("read", m.file(i % FILES)) / 1e9, _raw(server.url, "raw.bin")))
    table.pairs("cold NFS read, memory never used before / raw", pairs, "GB/s", None)


def nfs(bench, table, rounds, scale):
    size = 512 * MIB // scale
    src = bench.weights("source", FILES, size)
    server = Server(bench)
    bench.import_tree(src, "bench/w@1", server.url)
    shutil.copyfile(f"{src}/w0.bin", f"{server.export}/raw.bin")
    shutil.rmtree(src)
    os.sync()
    _raw(server.url, "raw.bin")

    with Mount(bench, server.url, "--dram", _dram(size)) as m:
        ring = Ring(bench, m, size)
        ring.start()
        pairs = [(ring.read("read"), _raw(server.url, "raw.bin")) for _ in range(rounds)]
        table.pairs("cold NFS read / raw reader, without NVMe", pairs, "GB/s", 0.5)
        ring.note(table)
        ring.start()
        pairs = [(ring.read("mmap"), ring.read("read")) for _ in range(rounds)]
        table.pairs("cold mmap walk / cold read", pairs, "GB/s", 0.85)
        ring.note(table)

    tier = bench.folder("nvme")
    # NVMe holds less than the ring, so every block is written behind anew.
    with Mount(bench, server.url, "--dram", _dram(size), "--nvme", f"{tier},{2 * size}") as m:
        ring = Ring(bench, m, size)
        ring.start()
        pairs = [(ring.read("read"), _raw(server.url, "raw.bin")) for _ in range(rounds)]
        table.pairs("cold NFS read / raw reader, with write-behind", pairs, "GB/s", 0.4)
        ring.note(table)
    shutil.rmtree(tier)

    proxy = Proxy(bench, server)
    with Mount(bench, proxy.url, "--dram", _dram(size)) as m:
        ring = Ring(bench, m, size)
        ring.start()
        proxy.set("rate", RATE)
        table.pairs("cold NFS read at 500 MB/s / that rate",
                    [(ring.read("read"), RATE / 1e9) for _ in range(rounds)], "GB/s", 0.95)
        ring.note(table)
    _fresh(bench, table, server, min(rounds, 3))
