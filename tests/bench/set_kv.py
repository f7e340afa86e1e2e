"""KV objects through a real mount: gets and puts against tmpfs, gets from NVMe against fio, a million objects."""
import json
import os
import re
import shutil
import subprocess

from machine import MIB, Mount, cpu, memory, output, program, wait_for

MILLION = 1_000_000


def _client(*argv):
    """One run of the client: what it says, with the seconds for one file added."""
    said = json.loads(output(program("tests/kv-files"), *map(str, argv)))
    said["each"] = said["seconds"] / max(said["files"], 1)
    return said


class Tmpfs:
    """A tmpfs with the huge pages that the tier has: the fastest that a node can do."""

    def __init__(self, bench):
        self.point = bench.folder("tmpfs")
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3G,huge=within_size", "tmpfs", self.point], check=True)
        bench.open.append(self)

    def close(self):
        subprocess.run(["umount", "-l", self.point], check=False)


def _mount(bench, remote, *more):
    return Mount(bench, remote, "--dram", "3GiB", "--kv-dram", "3000MiB", *more)


def _put(folder, size, count):
    """GB/s of count new files; they are gone afterwards and their memory is free again, but touched."""
    said = _client("put", folder, size, count)
    for name in os.listdir(folder):
        os.unlink(f"{folder}/{name}")
    return said["bytes"] / said["seconds"] / 1e9


def _round_trips(bench, table):
    """Seconds of an open and a close that a FUSE daemon answers at once."""
    folder = bench.folder("trivial")
    runs = [json.loads(output(program("tests/fuse-open"), folder, "20000")) for _ in range(3)]
    best = min(r["seconds"] / r["opens"] for r in runs)
    table.note(f"the bound of a get: open and close of a FUSE file that does nothing take {best * 1e6:.1f} µs")
    return best


def _gets(table, rounds, ours, peer, trips):
    for size, count, passes, target in ((4 * MIB, 64, 4, 0.7), (MIB // 4, 256, 16, 0.2)):
        for folder in ours, peer:
            os.makedirs(f"{folder}/{size}", exist_ok=True)
            _client("put", f"{folder}/{size}", size, count)

        def get(folder, size=size, count=count, passes=passes):
            return _client("get", f"{folder}/{size}", size, count, 1, passes)["each"]

        get(ours), get(peer)
        pairs = table.in_turn(3 * rounds, lambda: size / get(ours) / 1e9, lambda: size / get(peer) / 1e9)
        table.pairs(f"kv get {size // 1024} KiB, DRAM / tmpfs", pairs, "GB/s", target)
        alone = min(size / rate / 1e9 for _, rate in pairs)
        table.note(f"bound by the round trips: {alone / (alone + trips):.2f}")


def dram(bench, table, rounds, scale):
    """Gets and puts of what is in memory."""
    del scale
    peer = Tmpfs(bench)
    remote = "dir:" + bench.folder("remote")
    trips = _round_trips(bench, table)
    with _mount(bench, remote, "--nvme", f"{bench.folder('nvme')},8GiB") as m:
        kv = f"{m.point}/kv"
        _gets(table, rounds, kv, peer.point, trips)
        folders = [f"{kv}/put", f"{peer.point}/put"]
        for folder in folders:
            os.mkdir(folder)
            for _ in range(3):
                _put(folder, 4 * MIB, 64)
        pairs = table.in_turn(3 * rounds, *(lambda f=f: _put(f, 4 * MIB, 64) for f in folders))
        table.pairs("kv put 4 MiB / tmpfs, memory touched before", pairs, "GB/s", 0.5)
    peer.close()
    bench.open.remove(peer)


def _fio(bench, size):
    """GB/s of fio reading a file of size bytes: 4 MiB, depth 8, O_DIRECT."""
    said = json.loads(output(
        "fio", "--name=read", f"--filename={bench.path('fio.bin')}", f"--size={size}", "--rw=read", "--bs=4M",
        "--iodepth=8", "--ioengine=io_uring", "--direct=1", "--output-format=json"))
    return said["jobs"][0]["read"]["bw_bytes"] / 1e9


def cold(bench, table, rounds, scale):
    """Gets of what lies on NVMe alone."""
    count = 128 // scale
    remote = "dir:" + bench.folder("remote2")
    options = "--nvme", f"{bench.folder('nvme2')},8GiB"
    with _mount(bench, remote, *options) as m:
        os.mkdir(f"{m.point}/kv/cold")
        _client("put", f"{m.point}/kv/cold", 4 * MIB, count)

    def run():
        with _mount(bench, remote, *options) as m:
            folder = f"{m.point}/kv/cold"
            wait_for(lambda: os.path.exists(folder) and len(os.listdir(folder)) == count)
            said = _client("get", folder, 4 * MIB, count, 8)
            return said["bytes"] / said["seconds"] / 1e9

    _fio(bench, count * 4 * MIB)
    run()
    pairs = table.in_turn(rounds, run, lambda: _fio(bench, count * 4 * MIB))
    table.pairs("kv get 4 MiB, NVMe, 8 readers / fio 4 MiB x 8", pairs, "GB/s", 0.7)


def flush(bench, table, rounds, scale):
    """Flushing straight into the log, against one sequential write of the same bytes."""
    for what, count in (("4k", 100_000 // scale), ("mix", 4_000 // scale)):
        pairs, apart = [], []
        for _ in range(rounds):
            folder = bench.folder(f"flush.{what}")
            said = output(program("tests/kv-flush"), folder, what, str(count))
            shutil.rmtree(folder)
            ours, fio = re.search(r"s: ([\d.]+) MiB/s; fio ([\d.]+) MiB/s", said).groups()
            pairs.append((float(ours), float(fio)))
            apart.append(float(re.search(r"one for each ([\d.]+) MiB", said).group(1)))
        table.pairs(f"kv flush of {count}, {what} / fio, sequential", pairs, "MiB/s", 0.7)
        table.pairs(f"the same: MiB written for each fdatasync / 64, {what}", [(a, 64) for a in apart], "MiB", 1.0)
        table.note(re.search(r"CPU, .*", said).group())


def amplification(bench, table, rounds, scale):
    """What the log writes for what is put, at 80 % of its capacity; the traces: MC_TRACES."""
    del rounds, scale
    traces = sorted(os.listdir(os.environ["MC_TRACES"])) if "MC_TRACES" in os.environ else []
    traces = [os.path.join(os.environ["MC_TRACES"], t) for t in traces if t.endswith(".jsonl")]
    for trace in traces or ["generated"]:
        folder = bench.folder("amplify")
        said = output(program("tests/kv-amplify"), folder, trace, "30000")
        shutil.rmtree(folder)
        replayed, uniform = (float(x) for x in re.findall(r"written ÷ put ([\d.]+)", said))
        table.values(f"kv bytes written / put, {os.path.basename(trace)[:24]}", [replayed], "", 1.3)
        table.note(f"uniform overwriting: {uniform:.2f}")


def million(bench, table, rounds, scale):
    """A restart with a million objects, what they weigh, and their listing."""
    del rounds
    count = MILLION // scale
    dram_dir, nvme = bench.folder("million.dram"), bench.folder("million.nvme")
    put = json.loads(output(program("tests/kv-many"), "put", dram_dir, f"{nvme}/kv", str(count)))
    table.note(f"{count} objects put and flushed in {put['seconds']:.1f} s")
    opened = json.loads(output(program("tests/kv-many"), "open", dram_dir, f"{nvme}/kv"))
    table.values("kv index, bytes an object without its key", [opened["index"] / count - opened["key"]], "B", 128)
    table.note(f"index and the log's own table together: {opened['resident'] / count:.0f} B an object, of which its "
               f"key of {opened['key']} B twice")
    with _mount(bench, "dir:" + bench.folder("million.remote"), "--nvme", f"{nvme},16GiB") as m:
        ready = m.since()
        wait_for(lambda: not os.path.exists(f"{m.point}/kv/no-such-key"))
        complete = m.since()
        table.values(f"kv restart with {count} objects: ready", [ready], "s", 2)
        table.values(f"kv restart with {count} objects: index complete", [complete], "s", 5)
        table.note(f"CPU of the daemon until then: {sum(cpu(m.pid).values()):.2f} s")
        before = memory(m.pid)
        lists = [_client("list", f"{m.point}/kv/d") for _ in range(3)]
        names = {r["files"] for r in lists}
        if names != {count + 2}:
            raise SystemExit(f"listed {names} names, expected {count + 2}")
        table.values("kv listing, names a second", [r["files"] / r["seconds"] for r in lists], "/s", 1e6,
                     at_least=True)
        table.note(f"memory of the daemon while listing: {(memory(m.pid) - before) / MIB:+.1f} MiB")


def kv(bench, table, rounds, scale):
    dram(bench, table, rounds, scale)
    cold(bench, table, rounds, scale)
    flush(bench, table, rounds, scale)
    amplification(bench, table, rounds, scale)
    million(bench, table, rounds, scale)
