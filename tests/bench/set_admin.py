"""What an administrator waits for: listing and measuring a tier of a million objects, status beside a dead remote."""
import json
import os
import subprocess
import threading
import time

from machine import MIB, Mount, Proxy, Server, cpu, memory, output, program, spent_by_children, wait_for

MILLION = 1_000_000
READERS = 64


def _list(folder):
    begin = time.monotonic()
    with os.scandir(folder) as entries:
        names = sum(1 for _ in entries)
    return names, time.monotonic() - begin


def _du(mount, folder):
    """Seconds, and seconds of CPU that du and the daemon took together."""
    daemon, children, begin = sum(cpu(mount.pid).values()), spent_by_children(), time.monotonic()
    output("du", "-s", folder)
    seconds = time.monotonic() - begin
    return seconds, sum(cpu(mount.pid).values()) - daemon + spent_by_children() - children


def tiers(bench, table, scale):
    count = MILLION // scale
    dram_dir, nvme = bench.folder("dram"), bench.folder("nvme")
    output(program("tests/kv-many"), "put", dram_dir, f"{nvme}/kv", str(count))
    with Mount(bench, "dir:" + bench.folder("remote"), "--dram", "512MiB", "--nvme", f"{nvme},16GiB") as m:
        folder = f"{m.point}/tiers/nvme/kv/d"
        wait_for(lambda: os.path.isdir(folder) and not os.path.exists(f"{m.point}/kv/no-such-key"))
        rates = []
        for _ in range(3):
            names, seconds = _list(folder)
            if names != count:
                raise SystemExit(f"listed {names} names, expected {count}")
            rates.append(names / seconds)
        table.values("tiers/nvme: names a second by readdir", rates, "/s")
        held, walks = [memory(m.pid)], []
        for _ in range(3):
            walks.append(_du(m, folder))
            held.append(memory(m.pid))
        table.values("tiers/nvme: files a second by du", [count / w[0] for w in walks], "/s")
        table.values("tiers/nvme: du and daemon, CPU a file", [w[1] / count * 1e6 for w in walks], "µs", 10)
        table.values("tiers/nvme: memory after the second walk more than after the first",
                     [(held[3] - held[1]) / MIB], "MiB", 4)
        table.note(f"the first walk: {(held[1] - held[0]) / count:.0f} B an object, until the kernel forgets it")


def status(bench, table):
    """Answers of .mooncake/ while 64 readers wait for a server that hangs."""
    source = bench.folder("source")
    with open(f"{source}/cold.bin", "wb") as f:
        for i in range(READERS):
            f.write(bytes([i + 1]) * MIB)
    server = Server(bench)
    bench.import_tree(source, "acme/cold@1", server.url)
    proxy = Proxy(bench, server)
    with Mount(bench, proxy.url, "--dram", "256MiB") as m:
        fd = os.open(f"{m.point}/checkpoints/acme/cold@1/cold.bin", os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        proxy.set("hang")
        readers = [threading.Thread(target=os.pread, args=(fd, 16, i * MIB)) for i in range(READERS)]
        for t in readers:
            t.start()

        def read(name):
            with open(f"{m.point}/.mooncake/{name}", encoding="utf-8") as f:
                return f.read()

        wait_for(lambda: json.loads(read("status"))["requests"]["waiting"] >= READERS)
        for name in ("status", "metrics"):
            times = []
            for _ in range(200):
                begin = time.monotonic()
                read(name)
                times.append((time.monotonic() - begin) * 1000)
            table.values(f"{name} beside {READERS} readers of a dead remote: slowest of 200", [max(times)], "ms", 50)
        if not all(t.is_alive() for t in readers):
            raise SystemExit("the readers did not wait")
        proxy.set("pass")
        for t in readers:
            t.join()
        os.close(fd)


def admin(bench, table, rounds, scale):
    del rounds
    status(bench, table)
    subprocess.run(["sync"], check=False)
    tiers(bench, table, scale)
