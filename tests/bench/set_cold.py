"""What cold reads cost: bytes of the remote, memory of the daemon."""
import json
import os
import shutil
import subprocess
import threading

from machine import MIB, Mount, Proxy, Server, memory, output, program

FILES = 4


def _readers(paths):
    """Reads all paths at once, each in a process of its own."""
    running = [subprocess.Popen([program("tests/read-file"), "read", p], stdout=subprocess.DEVNULL)
               for p in paths]
    if any([p.wait() for p in running]):
        raise SystemExit("a reader failed")


def _served(bench, scale, files, size):
    src = bench.weights("source", files, size // scale)
    server = Server(bench)
    bench.import_tree(src, "bench/w@1", server.url)
    shutil.rmtree(src)
    return server


def amplification(bench, table, rounds, scale):
    size = 128 * MIB // scale
    server = _served(bench, scale, FILES, 128 * MIB)
    proxy = Proxy(bench, server)

    def remote_bytes(action):
        with Mount(bench, proxy.url, "--dram", "2GiB") as m:
            os.listdir(os.path.dirname(m.file(0)))
            before = proxy.to_client()
            wanted = action(m)
            return (proxy.to_client() - before) / MIB, wanted / MIB

    def eight(m):
        _readers([m.file(i) for i in range(FILES)] * 2)
        return FILES * size

    table.pairs("remote bytes / size, 8 processes, one checkpoint",
                [remote_bytes(eight) for _ in range(rounds)], "MiB", 1.01, at_least=False)

    def random(seed):
        def read(m):
            said = json.loads(output(program("tests/read-file"), "random", m.file(0), "100", str(seed)))
            return said["distinct_blocks"] * MIB
        return read

    # The proxy also sees RPC headers, attributes and look-ups: 1 % on top of the data.
    table.pairs("random 4 KiB: remote bytes / 1 MiB x blocks",
                [remote_bytes(random(s)) for s in range(rounds)], "MiB", 1.01, at_least=False)


class _Peak(threading.Thread):
    """Samples the memory of a process until it is told to stop."""

    def __init__(self, pid):
        super().__init__()
        self.pid, self.peak, self.over = pid, 0, threading.Event()

    def run(self):
        while not self.over.wait(0.01):
            self.peak = max(self.peak, memory(self.pid))

    def stop(self):
        self.over.set()
        self.join()
        return self.peak


def memory_set(bench, table, rounds, scale):
    files, size = 16, 64 * MIB
    server = _served(bench, scale, files, size)
    peaks = []
    for _ in range(min(rounds, 3)):
        nvme = bench.folder("nvme")
        with Mount(bench, server.url, "--dram", "512MiB", "--nvme", f"{nvme},4GiB") as m:
            peak = _Peak(m.pid)
            peak.start()
            _readers([m.file(i) for i in range(files)])
            peaks.append(peak.stop() / MIB)
        shutil.rmtree(nvme)
    table.values("daemon memory beyond DRAM, 16-way cold load", peaks, "MiB", 256)
