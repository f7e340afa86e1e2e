"""Checks of .mooncake/ in a mount: status_checks.py CHECK MOUNT [ARG...]."""
import errno
import json
import os
import re
import shutil
import subprocess
import threading
import time

import checks
from checks import MIB, errno_of, expect, until


READERS = 64


def text(mnt, name):
    with open(f"{mnt}/.mooncake/{name}", encoding="utf-8") as f:
        return f.read()


def status(mnt):
    return json.loads(text(mnt, "status"))


def samples(mnt):
    """{"name{labels}": value} of the metrics."""
    lines = [line for line in text(mnt, "metrics").splitlines() if not line.startswith("#")]
    return {line.rsplit(" ", 1)[0]: int(line.rsplit(" ", 1)[1]) for line in lines}


def check_files(mnt):
    expect("names", sorted(os.listdir(f"{mnt}/.mooncake")), ["config", "events", "metrics", "status"])
    expect("listed in the root", ".mooncake" in os.listdir(mnt), True)
    expect("missing", errno_of(os.stat, f"{mnt}/.mooncake/nope"), "ENOENT")
    expect("below a file", errno_of(os.stat, f"{mnt}/.mooncake/status/x"), "ENOTDIR")
    path = f"{mnt}/.mooncake/status"
    expect("write", errno_of(os.open, path, os.O_WRONLY), "EROFS")
    expect("unlink", errno_of(os.unlink, path), "EROFS")
    expect("create", errno_of(os.open, f"{mnt}/.mooncake/x", os.O_CREAT | os.O_WRONLY), "EROFS")
    fd = os.open(path, os.O_RDONLY)
    whole = os.pread(fd, MIB, 0)
    expect("one moment", b"".join(os.pread(fd, 100, i) for i in range(0, len(whole) + 100, 100)), whole)
    os.close(fd)
    many = [os.open(path, os.O_RDONLY) for _ in range(257)]
    expect("the first of too many", errno_of(os.pread, many[0], 10, 0), "ESTALE")
    expect("the last", len(os.pread(many[256], 10, 0)), 10)
    for fd in many:
        os.close(fd)
    status(mnt)


def check_status(mnt, version, remote):
    s = status(mnt)
    expect("mount point", s["mount"]["mountpoint"], mnt)
    expect("version", s["build"]["version"], version)
    expect("remote", (s["remotes"][0]["url"], s["remotes"][0]["reachable"]), (remote, True))
    tiers = [(t["tier"], t["data"], t["capacity_bytes"] // MIB) for t in s["tiers"]]
    expect("tiers", tiers, [("dram", "checkpoints", 64), ("nvme", "checkpoints", 512),
                            ("dram", "kv", 192), ("nvme", "kv", 512)])
    for mode, value in s["modes"].items():
        if isinstance(value, dict) and not value["on"] and not value["why"]:
            raise SystemExit(f"{mode} is off and nobody says why")
    expect("transport", s["modes"]["fuse_io_uring"],
           {"on": False, "why": "not used: a mount that it serves cannot be taken over"})
    expect("degraded", s["degraded"], [])
    wanted = {"done": True, "kv_index_complete": True, "kv_index_percent": 100, "kv_objects": 0,
              "nvme_verified_percent": 100, "nvme_files_to_verify": 0}
    until("the start is over", lambda: status(mnt)["recovery"] == wanted)
    m = samples(mnt)
    expect("per cent", (m["mooncakefs_kv_recovered_percent"], m["mooncakefs_verified_percent"]), (100, 100))


def check_short_disk(mnt, disk, given):
    """Both numbers, as a reason."""
    v = os.statvfs(disk)
    reasons = [t for t in status(mnt)["degraded"] if given in t and str(v.f_blocks * v.f_frsize) in t]
    expect("reasons", len(reasons), 1)


def check_counts(mnt):
    """What is read and put shows in status and in the metrics."""
    before = samples(mnt)
    with open(f"{mnt}/checkpoints/acme/model@r1/two.bin", "rb") as f:
        f.read()
    with open(f"{mnt}/kv/counted", "wb") as f:
        f.write(b"x" * 1000)
    os.stat(f"{mnt}/kv/counted")
    after, s = samples(mnt), status(mnt)
    expect("fetched", after["mooncakefs_fetched_bytes_total"] - before["mooncakefs_fetched_bytes_total"], 2 * MIB)
    expect("puts", after["mooncakefs_kv_puts_total"] - before["mooncakefs_kv_puts_total"], 1)
    expect("objects", (after["mooncakefs_kv_objects"], s["kv"]["objects"]), (1, 1))
    expect("fetched in status", s["checkpoints"]["fetched_bytes"], after["mooncakefs_fetched_bytes_total"])


def check_metrics(mnt):
    """The format's rules, and no label that could be a path or a key."""
    out = text(mnt, "metrics")
    seen, kinds = set(), {}
    for line in out.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            expect(f"{name} described once", name in kinds, False)
            kinds[name] = kind
            expect(f"{name} is a counter", name.endswith("_total"), kind == "counter")
        elif not line.startswith("#"):
            m = re.fullmatch(r'(mooncakefs_[a-z_]+)(\{[^}]*\})? ([0-9]+)', line)
            if m is None or m[1] not in kinds or line.split(" ")[0] in seen:
                raise SystemExit(f"metrics: {line}")
            seen.add(line.split(" ")[0])
            labels = dict(re.findall(r'([a-z]+)="([^"]*)"', m[2] or ""))
            if set(labels) - {"tier", "data", "mode", "reason", "version", "libfuse"} or "/" in str(labels):
                raise SystemExit(f"labels: {line}")
    promtool = shutil.which("promtool")
    if promtool is None:
        print("promtool is not installed: the names were checked by our own rules only")
        return
    r = subprocess.run([promtool, "check", "metrics"], input=out, text=True, capture_output=True)
    expect("promtool", (r.returncode, r.stdout + r.stderr), (0, ""))


def check_config(mnt, *wanted):
    """wanted: NAME=VALUE=ORIGIN"""
    config = json.loads(text(mnt, "config"))
    for w in wanted:
        name, value, origin = w.split("=")
        expect(name, config[name], {"value": value or None, "origin": origin})


def check_events(mnt, *wanted):
    """wanted: EVENT, or EVENT KEY VALUE as one word with spaces"""
    events = [json.loads(line) for line in text(mnt, "events").splitlines()]
    expect("in order", events, sorted(events, key=lambda e: e["time"]))
    for w in wanted:
        event, *pair = w.split(" ")
        lines = [e for e in events if e["event"] == event and (not pair or e.get(pair[0]) == pair[1])]
        if not lines:
            raise SystemExit(f"no event {w}: {events}")


def check_outage(mnt, *control):
    """The remote hangs, 64 readers wait for it, and every file still answers."""
    path = f"{mnt}/checkpoints/acme/model@r1/cold.bin"
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    listed = os.listdir(f"{mnt}/.mooncake")
    subprocess.run([*control, "hang"], check=True)
    results = []

    def reader(i):
        try:
            results.append(os.pread(fd, 16, i * MIB) == b"%015d\n" % i)
        except OSError as e:
            results.append(errno.errorcode[e.errno])

    readers = [threading.Thread(target=reader, args=(i,)) for i in range(READERS)]
    for t in readers:
        t.start()
    waiting = 0
    while waiting < READERS:
        if not all(t.is_alive() for t in readers):
            raise SystemExit(f"readers did not wait: {results}")
        waiting = status(mnt)["requests"]["waiting"]
    times = []
    for _ in range(100):  # more than are kept: the kernel holds their releases back
        for name in listed:
            begin = time.monotonic()
            text(mnt, name)
            times.append(time.monotonic() - begin)
    expect("in the metrics", samples(mnt)["mooncakefs_requests_waiting"] >= READERS, True)
    expect("still waiting", (results, all(t.is_alive() for t in readers)), ([], True))
    times.sort()
    print(f"{len(times)} answers beside {READERS} waiting readers: median {times[len(times) // 2] * 1000:.2f} ms, "
          f"p99 {times[len(times) * 99 // 100] * 1000:.2f} ms, longest {times[-1] * 1000:.2f} ms")
    subprocess.run([*control, "pass"], check=True)
    for t in readers:
        t.join()
    expect("afterwards", set(results), {True})


if __name__ == "__main__":
    checks.main(globals())
