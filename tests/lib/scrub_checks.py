"""Scrubbing through a mount: scrub_checks.py CHECK MNT SOURCE NVME LOG PID CONFIG. See it-scrub.sh."""
import json
import mmap
import os
import random
import signal
import socket
import sys
import time

MIB = 1 << 20
LIMIT_S = 120
mnt, source, nvme, log, pid, config = sys.argv[2:]
pid = int(pid)
model = f"{mnt}/checkpoints/acme/model@r1"
seed = int(os.environ.get("MC_SEED", time.time_ns()))
rng = random.Random(seed)


def equal(a, b, what):
    if a != b:
        raise SystemExit(f"FAILED: {what}: {a!r}, not {b!r}")


def await_true(test, what):
    deadline = time.monotonic() + LIMIT_S
    while not test():
        if time.monotonic() > deadline:
            raise SystemExit(f"FAILED: not in {LIMIT_S} s: {what}")
        time.sleep(0.02)


def content(path):
    with open(path, "rb") as f:
        return f.read()


def attribute(path, name):
    return os.getxattr(path, f"user.mooncake.{name}").decode()


def status():
    return json.loads(content(f"{mnt}/.mooncake/status"))


def metric(name):
    for line in content(f"{mnt}/.mooncake/metrics").decode().splitlines():
        if line.startswith(f"mooncakefs_{name} "):
            return int(line.split()[1])
    raise SystemExit(f"FAILED: no metric {name}")


def ask(request):
    """The answer, and the progress before it."""
    minor = os.minor(os.stat(mnt).st_dev)
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(LIMIT_S)
        s.connect(f"/run/mooncakefs/control-{minor}")
        s.sendall(json.dumps(request).encode() + b"\n")
        told = []
        for line in s.makefile("rb"):
            answer = json.loads(line)
            if "progress" not in answer:
                return answer, told
            told.append(answer["progress"])
    raise SystemExit("FAILED: no answer")


def scrub(**more):
    answer, _ = ask({"command": "scrub", **more})
    equal(answer["ok"], True, "scrub")
    return answer["result"]


def flip(path, off):
    with open(path, "r+b") as f:
        f.seek(off)
        was = f.read(1)[0]
        f.seek(off)
        f.write(bytes([was ^ 1 << rng.randrange(8)]))


def image(name):
    digest = attribute(f"{model}/{name}", "digest")
    return f"{nvme}/images/{digest[:2]}/{digest}-{os.stat(f'{model}/{name}').st_size}"


class Reader:
    """One that has a file mapped and open, and one that has closed what it mapped."""

    def __init__(self, name):
        self.want = content(f"{source}/{name}")
        self.fd = os.open(f"{model}/{name}", os.O_RDONLY)
        self.open = mmap.mmap(self.fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)

    def close(self):
        os.close(self.fd)
        self.fd = -1

    def right(self):
        ok = self.open[:] == self.want
        if self.fd >= 0:
            ok = ok and os.pread(self.fd, len(self.want), 0) == self.want
        return ok


def expect_found(result, **want):
    equal({k: result[k] for k in want}, want, f"result {result}")


def check_mapped():
    """Blocks that flip under a reader in passthrough are right again after a scrub, in the same file."""
    equal(attribute(f"{model}/one.bin", "io"), "passthrough", "mode")
    path = image("one.bin")
    readers = [Reader("one.bin"), Reader("two.bin")]
    readers[1].close()
    before = os.stat(path)
    for off in (5 * MIB + 7, 17 * MIB, os.stat(path).st_size - 1):
        flip(path, off)
    flip(image("two.bin"), 3 * MIB + rng.randrange(MIB))
    equal([r.right() for r in readers], [False, False], "readers see the damage")
    result = scrub()
    expect_found(result, bad=4, repaired=4, dropped=0, waiting=0, lost=0, failed=0)
    equal([r.right() for r in readers], [True, True], "readers after the scrub")
    after = os.stat(path)
    equal((after.st_ino, after.st_blocks), (before.st_ino, before.st_blocks), "the image")
    s = status()["scrub"]
    equal((s["last"], s["repaired_blocks"], s["unrepaired_blocks"]), (result, 4, 0), "status")
    equal((metric("scrub_bad_total"), metric("scrub_repaired_total")), (4, 4), "metrics")
    expect_found(scrub(), bad=0)


def check_away():
    """While the remote is away the damage stays, and is put right when it is back."""
    # What was damaged once is verified as a whole before the kernel gets it again.
    await_true(lambda: attribute(f"{model}/one.bin", "io") == "passthrough", "passthrough again")
    reader = Reader("one.bin")
    path, chunks = image("one.bin"), f"{os.path.dirname(source)}/remote/chunks"
    os.rename(chunks, chunks + ".away")
    flip(path, 9 * MIB + 5)
    expect_found(scrub(), bad=1, repaired=0, waiting=1)
    got = reader.open[:]
    equal((got[:9 * MIB + 5], got[9 * MIB + 6:]), (reader.want[:9 * MIB + 5], reader.want[9 * MIB + 6:]), "the rest")
    equal(status()["scrub"]["unrepaired_blocks"], 1, "status")
    equal(any("damaged blocks" in text for text in status()["degraded"]), True, "degraded")
    os.rename(chunks + ".away", chunks)
    await_true(lambda: status()["scrub"]["unrepaired_blocks"] == 0, "repaired when the remote is back")
    equal(reader.right(), True, "the reader")


def check_unread():
    """A block that nobody reads past the daemon is dropped, and the next reader gets right bytes."""
    flip(image("two.bin"), 2 * MIB + 1)
    expect_found(scrub(bytes_per_second=1 << 40), bad=1, dropped=1)
    equal(content(f"{model}/two.bin") == content(f"{source}/two.bin"), True, "two.bin")
    await_true(lambda: int(attribute(f"{model}/two.bin", "resident.nvme")) == os.stat(f"{model}/two.bin").st_size,
               "two.bin on NVMe again")


def flip_object(want):
    """Flips a bit of these bytes wherever they lie in the KV log: large objects lie in parts."""
    n, off = 0, rng.randrange(len(want) - 63) // 64 * 64
    want = want[off:off + 64]
    for folder, _, names in os.walk(f"{nvme}/kv"):
        for name in names:
            path = f"{folder}/{name}"
            at = -1 if "journal" in folder else content(path).find(want)
            if at >= 0:
                flip(path, at + rng.randrange(len(want)))
                n += 1
    equal(n, 1, "places of the object")


def check_objects():
    """KV objects: written anew where DRAM has them; the last copy stays and is told."""
    objects = {f"{mnt}/kv/{k}": rng.randbytes(n) for k, n in (("small", 5000), ("large", 3 * MIB), ("last", 300000))}
    for path, data in objects.items():
        with open(path, "wb") as f:
            f.write(data)
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    os.setxattr(f"{mnt}/kv/last", "user.mooncake.evict", b"dram")
    for data in objects.values():
        flip_object(data)
    expect_found(scrub(), bad=3, repaired=2, lost=1)
    equal(status()["scrub"]["lost_objects"], 1, "status")
    equal(metric("scrub_lost_objects"), 1, "metric")
    lost = [x for x in content(log).decode().splitlines() if "event=kv-object-lost" in x]
    equal(['key="last"' in x for x in lost], [True], "the log")
    equal(os.stat(f"{mnt}/kv/last").st_size, 300000, "the lost object is there")
    for key in ("small", "large"):
        path = f"{mnt}/kv/{key}"
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        os.setxattr(path, "user.mooncake.evict", b"dram")
        equal(content(path) == objects[path], True, key)
    os.unlink(f"{mnt}/kv/last")
    expect_found(scrub(), bad=0, lost=0)
    equal(status()["scrub"]["lost_objects"], 0, "status afterwards")


def check_watched():
    """An ordered pass tells how far it is, one that nobody waits for any more is none; rates can change."""
    minor = os.minor(os.stat(mnt).st_dev)
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(LIMIT_S)
        s.connect(f"/run/mooncakefs/control-{minor}")
        s.sendall(b'{"command": "scrub", "bytes_per_second": 1}\n')
        told = json.loads(s.makefile("rb").readline())
        equal(sorted(told["progress"]), ["bad", "bytes", "total"], "progress")
        equal(status()["scrub"]["ordered"], True, "ordered")
    await_true(lambda: not status()["scrub"]["ordered"], "the order ends with who gave it")
    equal((status()["scrub"]["running"], status()["scrub"]["bytes_per_second"]), (False, 0), "--scrub 0")
    with open(config, "w", encoding="utf-8") as f:
        json.dump({"scrub": "1GiB"}, f)
    os.kill(pid, signal.SIGHUP)
    await_true(lambda: status()["scrub"]["bytes_per_second"] == 1 << 30, "the new rate")
    passes = status()["scrub"]["passes"]
    await_true(lambda: status()["scrub"]["passes"] > passes or not status()["scrub"]["running"], "the pass goes on")


def check_background():
    """Without an order what is damaged is found, too."""
    await_true(lambda: status()["scrub"]["passes"] > 0, "a pass")
    expect_found(status()["scrub"]["last"], bad=1, dropped=1)
    equal("event=nvme-bad-block" in content(log).decode(), True, "the log")
    equal(os.path.exists(f"{nvme}/scrub"), True, "the place is kept")
    equal(content(f"{model}/two.bin") == content(f"{source}/two.bin"), True, "two.bin")


print("seed", seed)
globals()[f"check_{sys.argv[1]}"]()
