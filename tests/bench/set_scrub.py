"""What a scrub at its default rate costs readers, and whether it keeps to that rate."""
import json
import os
import socket
import time

from machine import MIB, Mount, cpu, drop, read_file, wait_for
from set_local import _largest

RATE = 16 * MIB
WATCHED_S = 5


def _status(m):
    with open(f"{m.point}/.mooncake/status", encoding="utf-8") as f:
        return json.load(f)["scrub"]


class Order:
    """A pass at the default rate for as long as somebody waits; begun anew when it has ended."""

    def __init__(self, m, rate=RATE):
        self.m, self.rate, self.sock = m, rate, None

    def __enter__(self):
        minor = os.minor(os.stat(self.m.point).st_dev)
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(f"/run/mooncakefs/control-{minor}")
        self.sock.sendall(json.dumps({"command": "scrub", "bytes_per_second": self.rate}).encode() + b"\n")
        wait_for(lambda: _status(self.m)["pass"]["bytes"] < 64 * MIB and _status(self.m)["running"], step=0.005)
        return self

    def result(self):
        for line in self.sock.makefile("rb"):
            answer = json.loads(line)
            if "result" in answer:
                return answer["result"]
        raise SystemExit("no answer to scrub")

    def __exit__(self, *_):
        self.sock.close()
        wait_for(lambda: not _status(self.m)["ordered"])


def scrub(bench, table, rounds, scale):
    size = 512 * MIB // scale
    src = bench.weights("source", 1, size)
    remote = "dir:" + bench.folder("remote")
    tier = bench.folder("nvme")
    bench.import_tree(src, "bench/w@1", remote)
    options = "--dram", str(2 * size), "--nvme", f"{tier},{4 * size}", "--scrub", "0"
    with Mount(bench, remote, *options) as m:
        read_file("read", m.file(0))
        wait_for(lambda: int(m.attribute(0, "resident.nvme")) == size)
    with Mount(bench, remote, *options) as m:
        wait_for(lambda: m.attribute(0, "io") == "passthrough")
        image = _largest(tier)

        def cold():
            drop(image)
            return read_file("read", m.file(0)) / 1e9

        def beside():
            with Order(m):
                return cold()

        cold(), beside()
        table.pairs("cold NVMe-resident read, scrub on / off", table.in_turn(2 * rounds, beside, cold),
                    "GB/s", 0.95)
        with Order(m):
            before, spent = _status(m)["pass"]["bytes"], cpu(m.pid)
            time.sleep(WATCHED_S)
            after = _status(m)["pass"]["bytes"]
            used = sum(cpu(m.pid).values()) - sum(spent.values())
        table.values("scrub at 16 MiB/s: bytes a second", [(after - before) / WATCHED_S / 1e6], "MB/s",
                     (RATE + MIB) / 1e6)
        table.values("the same: share of a core", [100 * used / WATCHED_S], "%", 2)
        begin = time.monotonic()
        with Order(m, 0) as o:
            read = o.result()["bytes"]
        table.values("scrub on order, no limit: O_DIRECT, 1 MiB at a time", [read / (time.monotonic() - begin) / 1e9],
                     "GB/s")
