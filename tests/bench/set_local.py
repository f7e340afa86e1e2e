"""Files that are resident: DRAM against its tmpfs, NVMe against its file system."""
import os
import shutil

from machine import MIB, Mount, drop, read_file, wait_for


def _largest(folder):
    """The backing file: the largest file below folder."""
    return max((os.path.join(top, f) for top, _, files in os.walk(folder) for f in files),
               key=os.path.getsize)


def dram(bench, table, rounds, scale):
    size = 512 * MIB // scale
    src = bench.weights("source", 1, size)
    remote = "dir:" + bench.folder("remote")
    bench.import_tree(src, "bench/w@1", remote)
    with Mount(bench, remote, "--dram", str(4 * size)) as m:
        read_file("read", m.file(0))
        if m.attribute(0, "io") != "passthrough":
            table.note("not served by passthrough: " + m.log().splitlines()[0])
        peer = _largest(m.dram_dir())
        for way in "read", "mmap":
            read_file(way, m.file(0)), read_file(way, peer)
            pairs = [(read_file(way, m.file(0), 4) / 1e9, read_file(way, peer, 4) / 1e9)
                     for _ in range(rounds)]
            table.pairs(f"DRAM-resident, {way}{' 1 MiB' if way == 'read' else ''} / tmpfs", pairs,
                        "GB/s", 0.95)


def nvme(bench, table, rounds, scale):
    size = 512 * MIB // scale
    src = bench.weights("source", 1, size)
    remote = "dir:" + bench.folder("remote")
    tier = bench.folder("nvme")
    bench.import_tree(src, "bench/w@1", remote)
    # DRAM smaller than the file, so that NVMe is the one tier that has all of it.
    with Mount(bench, remote, "--dram", "64MiB", "--nvme", f"{tier},{4 * size}") as m:
        read_file("read", m.file(0))
        wait_for(lambda: int(m.attribute(0, "resident.nvme")) == size)
        wait_for(lambda: m.attribute(0, "io") == "passthrough")
        image, peer = _largest(tier), bench.path("peer.bin")
        shutil.copyfile(image, peer)
        os.sync()

        def cold(path, backing):
            drop(backing)
            return read_file("read", path) / 1e9

        cold(m.file(0), image), cold(peer, peer)
        pairs = [(cold(m.file(0), image), cold(peer, peer)) for _ in range(rounds)]
        table.pairs("NVMe-resident, page cache dropped / file", pairs, "GB/s", 0.9)
