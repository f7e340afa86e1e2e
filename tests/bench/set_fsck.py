"""fsck of a node's cache directory: its rate beside plain reads of the same files, its memory."""
import glob
import json
import os
import subprocess
import time

from machine import MIB, Mount, output, program, read_file, wait_for

OBJECTS = 1_000_000


def _fsck(folder):
    """What it said, seconds, and its peak of memory in bytes."""
    begin = time.monotonic()
    with subprocess.Popen([program("mooncakefs"), "fsck", "--json", folder],
                          stdout=subprocess.PIPE, text=True) as p:
        said = p.stdout.read()
        _, status, used = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode != 0:
        raise SystemExit(f"fsck ended with {p.returncode}: {said}")
    return json.loads(said.strip().splitlines()[-1]), time.monotonic() - begin, used.ru_maxrss * 1024


def _dd(files):
    """Bytes a second of reading them one after another, past the page cache."""
    begin = time.monotonic()
    for f in files:
        output("dd", f"if={f}", "of=/dev/null", "iflag=direct", "bs=1M", "status=none")
    return sum(map(os.path.getsize, files)) / (time.monotonic() - begin)


def _rate(folder):
    said, seconds, _ = _fsck(folder)
    return said["bytes"] / seconds


def _pairs(table, rounds, name, folder, files):
    table.pairs(name, [(o / 1e9, p / 1e9) for o, p in table.in_turn(
        rounds, lambda: _rate(folder), lambda: _dd(files))], "GB/s", 0.8)


def _images(bench, table, rounds, scale):
    size = 512 * MIB // scale
    remote = "dir:" + bench.folder("remote")
    tier = bench.folder("nvme")
    bench.import_tree(bench.weights("source", 1, size), "bench/w@1", remote)
    with Mount(bench, remote, "--dram", str(2 * size), "--kv-dram", "0", "--nvme",
               f"{tier},{2 * size}") as m:
        read_file("read", m.file(0))
        wait_for(lambda: int(m.attribute(0, "resident.nvme")) == size)
    files = [f for f in glob.glob(f"{tier}/images/*/*") if os.path.getsize(f) == size]
    _pairs(table, rounds, "fsck of checkpoint images / dd, O_DIRECT", tier, files)


def fsck(bench, table, rounds, scale):
    _images(bench, table, rounds, scale)
    log = bench.folder("mix")
    output(program("tests/kv-flush"), log, "mix", str(2_000 // scale))
    files = glob.glob(f"{log}/segments/*") + glob.glob(f"{log}/kvimages/*/*")
    _pairs(table, rounds, "fsck of KV objects, mix / dd, O_DIRECT", log, files)
    log = bench.folder("million")
    count = OBJECTS // scale
    output(program("tests/kv-flush"), log, "restart", str(count))
    said, seconds, peak = _fsck(log)
    if said["objects"] != count:
        raise SystemExit(f"fsck looked at {said['objects']} objects of {count}")
    table.values(f"fsck of {count} small KV objects", [seconds], "s")
    table.values("the same: peak of its memory", [peak / MIB], "MiB", 256)
