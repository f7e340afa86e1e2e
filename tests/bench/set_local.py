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
            pairs = table.in_turn(3 * rounds, lambda w=way: read_file(w, m.file(0), 4) / 1e9,
                                  lambda w=way: read_file(w, peer, 4) / 1e9)
            table.pairs(f"DRAM-resident, {way}{' 1 MiB' if way == 'read' else ''} / tmpfs", pairs,
                        "GB/s", 0.95)


def nvme(bench, table, rounds, scale):
    size = 512 * MIB // scale
    src = bench.weights("source", 1, size)
    remote = "dir:" + bench.folder("remote")
    tier = bench.folder("nvme")
    bench.import_tree(src, "bench/w@1", remote)
    options = "--dram", str(2 * size), "--nvme", f"{tier},{4 * size}"
    with Mount(bench, remote, *options) as m:
        read_file("read", m.file(0))
        wait_for(lambda: int(m.attribute(0, "resident.nvme")) == size)
    # Memory is empty after a stop; the image is read through and verified, then passed through.
    with Mount(bench, remote, *options) as m:
        wait_for(lambda: m.attribute(0, "io") == "passthrough")
        image, peer = _largest(tier), bench.path("peer.bin")
        shutil.copyfile(image, peer)
        os.sync()

        def cold(path, backing):
            drop(backing)
            return read_file("read", path) / 1e9

        cold(m.file(0), image), cold(peer, peer)
        pairs = table.in_turn(2 * rounds, lambda: cold(m.file(0), image), lambda: cold(peer, peer))
        table.pairs("NVMe-resident, page cache dropped / file", pairs, "GB/s", 0.9)
