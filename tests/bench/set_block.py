"""The block tier on a loop device against fio on the same device: reads of 1 MiB, and writes as a flush makes them."""
import json
import os
import subprocess

from machine import MIB, output, program


SEGMENTS_AT = 64 * MIB  # behind superblock and journal of what is formatted here


class Loop:
    """A loop device over a file of its own, past the page cache."""

    def __init__(self, bench, size):
        self.file = bench.path("block.img")
        with open(self.file, "wb") as f:
            os.posix_fallocate(f.fileno(), 0, size)
        self.device = output("losetup", "--find", "--show", "--direct-io=on", self.file).strip()
        bench.open.append(self)

    def close(self):
        subprocess.run(["losetup", "-d", self.device], check=False)
        os.unlink(self.file)


def _fio(device, way, size, offset=0):
    said = json.loads(output(
        "fio", "--name=block", f"--filename={device}", f"--offset={offset}", f"--size={size}", f"--rw={way}", "--bs=1M",
        "--iodepth=8", "--ioengine=io_uring", "--direct=1", "--end_fsync=1", "--output-format=json", "--allow_file_create=0"))
    return said["jobs"][0]["write" if "write" in way else "read"]["bw_bytes"] / 1e9


def _rate(device, what, count):
    said = json.loads(output(program("tests/block-rate"), device, what, str(count)))
    return said["bytes"] / said["seconds"] / 1e9


def block(bench, table, rounds, scale):
    """One device, formatted anew for each round: fio's writes leave nothing of a store."""
    count = 1024 // scale
    loop = Loop(bench, 2 * count * MIB)
    writes, reads = [], []
    for i in range(rounds):
        peer = _fio(loop.device, "write", count * MIB)
        output(program("tests/block-rate"), loop.device, "format")
        _fio(loop.device, "write", count * MIB, SEGMENTS_AT)  # the format gave the file's blocks back
        writes.append((_rate(loop.device, "put", count), peer))
        pair = [lambda: _rate(loop.device, "get", count), lambda: _fio(loop.device, "randread", count * MIB)]
        first, second = pair if i % 2 == 0 else pair[::-1]
        one, two = first(), second()
        reads.append((one, two) if i % 2 == 0 else (two, one))
    table.pairs("block: batched write of 1 MiB objects / fio 1 MiB x 8", writes, "GB/s", 0.85)
    table.pairs("block: cold read 1 MiB, 8 at a time / fio", reads, "GB/s", 0.85)
    loop.close()
    bench.open.remove(loop)
