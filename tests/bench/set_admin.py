"""What an administrator waits for: listing and measuring a tier of a million objects, status beside a dead remote."""
import json
import os
import subprocess
import sys
import threading
import time

from machine import MIB, Mount, Proxy, Server, cpu, memory, output, program, spent_by_children, wait_for

MILLION = 1_000_000
READERS = 64
WRITERS = 8
OBJECT = 256 << 10


def _seconds(call):
    begin = time.monotonic()
    call()
    return time.monotonic() - begin


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
        table.values("tiers/nvme: names a second by readdir", rates, "/s", 1e6, at_least=True)
        held, walks = [memory(m.pid)], []
        for _ in range(3):
            walks.append(_du(m, folder))
            held.append(memory(m.pid))
        table.values("tiers/nvme: files a second by du", [count / w[0] for w in walks], "/s", 1e5, at_least=True)
        table.values("tiers/nvme: du and daemon, CPU a file", [w[1] / count * 1e6 for w in walks], "µs", 10)
        table.values("tiers/nvme: memory after the third walk more than after the first",
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


def takeover(bench, table):
    """The worker is killed five times under 16 readers, and replaced twice."""
    lib = os.path.join(os.path.dirname(__file__), "..", "lib")
    source, llama, remote = bench.folder("tree"), bench.path("llama"), "dir:" + bench.folder("takeover")
    python = [sys.executable, "-B"]
    output(*python, f"{lib}/takeover_load.py", "make", source)
    output(*python, f"{lib}/view_checks.py", "make", "llama", llama)
    bench.import_tree(source, "acme/model@r1", remote)
    bench.import_tree(llama, "acme/llama@r1", remote)
    with Mount(bench, remote, "--dram", "256MiB", "--nvme", f"{bench.folder('takeover-nvme')},1GiB") as m:
        for check, what in (("kills", "killed 5 times"), ("upgrade", "replaced twice")):
            text = output(*python, f"{lib}/takeover_load.py", source, f"{m.point}/checkpoints/acme/model@r1",
                          f"{m.point}/kv/t", str(m.process.pid), m.log_path, check)
            gap = float(text.split("longest gap")[1].split()[0])
            table.values(f"worker {what} under 16 readers: longest gap", [gap], "s", 2)
    table.note("16 readers, cached, direct, passed through, mapped, listing, of views and of kv/: no failed call")


def _put_until_error(folder, closed):
    """Puts one object after the other; closed gets their names."""
    i = 0
    try:
        while True:
            name = f"{threading.get_native_id()}-{i}"
            with open(f"{folder}/{name}", "wb", buffering=0) as f:
                f.write(name.encode().ljust(OBJECT, b"."))
            closed.append(name)
            i += 1
    except OSError:
        pass


def _lost(folder, names):
    lost = 0
    for name in names:
        try:
            with open(f"{folder}/{name}", "rb") as f:
                lost += f.read() != name.encode().ljust(OBJECT, b".")
        except OSError:
            lost += 1
    return lost


def stop(bench, table, rounds):
    """SIGTERM to the end of the process, idle and under writers with dirty data."""
    remote, nvme = "dir:" + bench.folder("stop"), f"{bench.folder('stop-nvme')},2GiB"
    idle, busy, lost, names, dirty = [], [], 0, [], 0
    for _ in range(rounds):
        with Mount(bench, remote, "--dram", "1GiB", "--kv-dram", "512MiB", "--nvme", nvme) as m:
            folder = f"{m.point}/kv/stop"
            os.makedirs(folder, exist_ok=True)
            lost += _lost(folder, names)
            names = []
            idle.append(_seconds(m.close))
        with Mount(bench, remote, "--dram", "1GiB", "--kv-dram", "512MiB", "--nvme", nvme) as m:
            writers = [threading.Thread(target=_put_until_error, args=(folder, names)) for _ in range(WRITERS)]
            for t in writers:
                t.start()
            wait_for(lambda: len(names) >= 400)
            with open(f"{m.point}/.mooncake/status", encoding="utf-8") as f:
                dirty = max(dirty, json.load(f)["kv"]["dirty_bytes"])
            busy.append(_seconds(m.close))
            for t in writers:
                t.join()
    with Mount(bench, remote, "--dram", "1GiB", "--kv-dram", "512MiB", "--nvme", nvme) as m:
        lost += _lost(folder, names)
    table.values("SIGTERM to the end, idle", idle, "s", 2)
    table.values(f"SIGTERM to the end, {WRITERS} writers", busy, "s", 30)
    table.note(f"dirty before it: up to {dirty / MIB:.0f} MiB; objects lost that a close had acknowledged: {lost}")
    if lost:
        raise SystemExit(f"{lost} objects are lost")


def admin(bench, table, rounds, scale):
    status(bench, table)
    takeover(bench, table)
    stop(bench, table, min(rounds, 3))
    subprocess.run(["sync"], check=False)
    tiers(bench, table, scale)
