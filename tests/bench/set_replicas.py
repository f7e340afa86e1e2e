"""Copies on two NFS servers: bandwidth, and what readers notice when one or both fail."""
import hashlib
import os
import random
import shutil
import signal
import statistics
import subprocess
import threading
import time

from machine import MIB, Mount, Proxy, Server, SlowNetwork, cpu, program, read_file, wait_for

RATE = 40_000_000   # bytes a second of each rate-limited server: not what two cores can do
HOLE = 60           # seconds
FILES = 4


class _Pair:
    """Two servers behind proxies, and a checkpoint that both hold."""

    def __init__(self, bench, files, size):
        self.bench = bench
        self.servers = [Server(bench, name) for name in ("nfs-a", "nfs-b")]
        self.proxies = [Proxy(bench, s, f"proxy-{i}") for i, s in enumerate(self.servers)]
        self.names = [f"{p.url}#name={n}" for p, n in zip(self.proxies, "ab")]
        src = bench.weights("source", files, size)
        self.digests = []
        for i in range(files):
            with open(f"{src}/w{i}.bin", "rb") as f:
                self.digests.append(hashlib.sha256(f.read()).hexdigest())
        bench.import_tree(src, "bench/w@1", self.names[0], "--remote", self.names[1])
        shutil.rmtree(src)

    def mount(self, *options):
        return Mount(self.bench, self.names[0], "--remote", self.names[1], "--kv-dram", "0", *options)

    def all(self, *order):
        for p in self.proxies:
            p.set(*order)


def _bandwidth(pair, table, rounds):
    direct = [f"{s.url}#name={n}" for s, n in zip(pair.servers, "ab")]

    def read(*more):
        with Mount(pair.bench, direct[0], *more, "--dram", "2GiB", "--kv-dram", "0") as m:
            os.stat(m.file(0))
            return read_file("read", m.file(0)) / 1e6

    with SlowNetwork(RATE, *(s.port for s in pair.servers)):
        for s in pair.servers:
            s.restart()
        pairs = table.in_turn(rounds, lambda: read("--remote", direct[1]), read)
    table.pairs("2 replicas on 2 rate-limited servers / one", pairs, "MB/s", 1.9)
    for s in pair.servers:
        s.restart()


def _read(path, digest, at, action):
    """Reads a file once, acts when it is at that byte; (whether bytes are wrong, longest stall in seconds)."""
    h, longest, done = hashlib.sha256(), 0.0, 0
    with open(path, "rb", buffering=0) as f:
        while True:
            begin = time.monotonic()
            got = f.read(MIB)
            longest = max(longest, time.monotonic() - begin)
            if not got:
                break
            h.update(got)
            if done < at <= done + len(got):
                action()
            done += len(got)
    return h.hexdigest() != digest, longest


def _killed(pair, table, size):
    """One server is killed in the middle of the first of four files."""
    wrong, stall = 0, 0
    with pair.mount("--dram", "1GiB") as m:
        for i in range(FILES):
            bad, longest = _read(m.file(i), pair.digests[i], size // 2 if i == 0 else -1,
                                 lambda: os.kill(pair.servers[0].pid, signal.SIGKILL))
            wrong += bad
            stall = max(stall, longest)
    pair.servers[0].restart()
    table.values(f"one of 2 killed during a cold read of {FILES * size // MIB} MiB: files wrong", [wrong], "", None)
    table.values("one of 2 killed: longest stall", [stall], "s", 2)


def _random_reads(m, file, count, seed):
    """Latencies in ms of reads of so many cold blocks, one after the other."""
    fd = os.open(m.file(file), os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    blocks = random.Random(seed).sample(range(os.fstat(fd).st_size // MIB), count)
    took = []
    for block in blocks:
        begin = time.monotonic()
        os.pread(fd, 4096, block * MIB)
        took.append(1000 * (time.monotonic() - begin))
    os.close(fd)
    return took


def _p99(values):
    return statistics.quantiles(values, n=100)[98]


def _hung(pair, table, rounds, count):
    pairs = []
    for i in range(rounds):
        with pair.mount("--dram", "2GiB") as m:
            healthy = _p99(_random_reads(m, 2, count, i))
            pair.proxies[i % 2].set("hang")
            extra = _p99(_random_reads(m, 3, count, i)) - healthy
            pair.all("pass")
        pairs.append((extra, 2 * healthy + 10))
    table.pairs("a replica hangs: p99 of cold 4 KiB reads, extra / (2 x healthy + 10 ms)", pairs, "ms", 1.0,
                at_least=False)


def _black_hole(pair, table, seconds):
    """Both hang under 64 readers: metadata meanwhile, CPU of the daemon, and the first good read afterwards."""
    with pair.mount("--dram", "2GiB", "--deadline", "30") as m:
        folder = os.path.dirname(m.file(0))
        for name in os.listdir(folder):
            os.stat(f"{folder}/{name}")
        pair.all("hang")
        readers = [subprocess.Popen([program("tests/read-file"), "random", m.file(i % 4), "1", str(i)],
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for i in range(64)]
        time.sleep(2)
        took, before, begin = [], sum(cpu(m.pid).values()), time.monotonic()
        while time.monotonic() < begin + seconds:
            for name in os.listdir(folder):
                t = time.monotonic()
                os.stat(f"{folder}/{name}")
                os.statvfs(folder)
                took.append(1000 * (time.monotonic() - t))
            time.sleep(0.1)
        spent = sum(cpu(m.pid).values()) - before
        elapsed = time.monotonic() - begin
        pair.all("pass")
        begin = time.monotonic()
        good = threading.Event()

        def first():
            while not good.is_set():
                try:
                    with open(m.file(1), "rb", buffering=0) as f:
                        f.seek(random.randrange(16) * MIB)
                        f.read(4096)
                    good.set()
                except OSError:
                    time.sleep(0.01)
        t = threading.Thread(target=first)
        t.start()
        wait_for(good.is_set, step=0.005)
        back = time.monotonic() - begin
        t.join()
        for r in readers:
            r.wait()
    table.values(f"black hole of {seconds} s, 64 readers: metadata p99", [_p99(took)], "ms", 50)
    table.values("daemon CPU meanwhile, of a core", [100 * spent / elapsed], "%", 2)
    table.values("first good read after it", [back], "s", 2)


def replicas(bench, table, rounds, scale):
    size = 1024 * MIB // scale
    pair = _Pair(bench, FILES, size)
    _bandwidth(pair, table, min(rounds, 3))
    _hung(pair, table, min(rounds, 3), min(300, size // MIB))
    _black_hole(pair, table, max(HOLE // scale, 10))
    _killed(pair, table, size)
