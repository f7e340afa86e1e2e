"""Clients of a mount whose worker dies or is replaced under them.

  takeover_load.py make SOURCE                            a tree, to be imported as acme/model@r1
  takeover_load.py SOURCE MOUNTED KV PID LOG CHECK...     checks of the mount; acme/llama@r1 is there, too

The keeper of the mount is PID. Each check has 16 readers, which open, read, map, list and stat what SOURCE
holds and what lies in KV; one wrong byte or one failed call fails it. Prints the longest gap that a reader saw.
"""
import ctypes
import errno
import json
import mmap
import os
import random
import signal
import sys
import threading
import time

LARGE, MIDDLE, SMALL = "large.bin", "middle.bin", "dir/small.txt"
MANY = [f"{i:03}" for i in range(60)]


def make(folder):
    for name, data in ((LARGE, os.urandom(9_000_001)), (MIDDLE, os.urandom(900_001)),
                       (SMALL, "".join(f"{i}\n" for i in range(1, 10000)).encode()),
                       *((f"many/{n}", n.encode()) for n in MANY)):
        os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
        with open(f"{folder}/{name}", "wb") as f:
            f.write(data)
    os.symlink(LARGE, f"{folder}/link")


if sys.argv[1] == "make":
    make(sys.argv[2])
    sys.exit()
source, mounted, kv, keeper, log, *checks = sys.argv[1:]
keeper = int(keeper)
root = kv.removesuffix("/kv/t")
LIMIT_S = 90  # for what takes a second on an idle machine
SEED = int(os.environ.get("MC_SEED", time.time_ns() % 1000000))
print(f"seed {SEED}")

want = {}
for name in (LARGE, MIDDLE, SMALL):
    with open(f"{source}/{name}", "rb") as f:
        want[name] = f.read()
objects = {f"small-{i}": random.Random(i).randbytes(1000 + i) for i in range(8)}
objects["large"] = random.Random(8).randbytes(3_000_000)


def fail(text):
    raise SystemExit(f"FAILED: {text}")


def equal(a, b, what):
    if a != b:
        text = f"{a!r}"[:80]
        raise AssertionError(f"{what}: {text} is not {b!r}"[:300])


def worker():
    with open(f"/proc/{keeper}/task/{keeper}/children", encoding="ascii") as f:
        pids = f.read().split()
    return int(pids[0]) if pids else None


def lines(text):
    with open(log, encoding="utf-8", errors="replace") as f:
        return f.read().count(text)


def until(condition, what):
    end = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end:
            fail(f"not within {LIMIT_S} s: {what}")
        time.sleep(0.01)


class Load:
    """Readers until they are stopped; what failed in them."""

    def __init__(self, readers):
        self.end = threading.Event()
        self.failed = []
        self.done = [0] * len(readers)
        self.gap = 0.0
        self.threads = [threading.Thread(target=self._run, args=(i, r), daemon=True) for i, r in enumerate(readers)]
        for t in self.threads:
            t.start()
        until(lambda: min(self.done) > 0 or self.failed, "a first round of each reader")

    def _run(self, i, reader):
        rng = random.Random(SEED * 100 + i)
        steps = reader(rng)
        while not self.end.is_set():
            begin = time.monotonic()
            try:
                next(steps)
            except BaseException as e:  # noqa: BLE001, whatever it is fails the check
                self.failed.append(f"{reader.__name__}: {type(e).__name__}: {e}")
                return
            self.gap = max(self.gap, time.monotonic() - begin)
            self.done[i] += 1

    def progress(self):
        """Waits until each reader has done two more rounds: one of them was begun after now."""
        before = list(self.done)
        until(lambda: self.failed or all(d >= b + 2 for d, b in zip(self.done, before)), "progress of each reader")
        self.check()

    def check(self):
        if self.failed:
            self.end.set()
            fail("; ".join(self.failed))

    def stop(self):
        self.end.set()
        for t in self.threads:
            t.join(LIMIT_S)
            if t.is_alive():
                fail("a reader hangs")
        self.check()


def errno_of(call, *args):
    try:
        call(*args)
    except OSError as e:
        return e.errno
    return 0


def pread_all(fd, size):
    data = b""
    while len(data) < size:
        part = os.pread(fd, min(size - len(data), 1 << 17), len(data))
        if not part:
            break
        data += part
    return data


def held(name):
    """One descriptor for the whole time, dropped from the page cache now and then."""
    def reader(rng):
        fd = os.open(f"{mounted}/{name}", os.O_RDONLY)
        while True:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            off = rng.randrange(len(want[name]))
            size = rng.randrange(1, 300_000)
            equal(os.pread(fd, size, off), want[name][off:off + size], f"{name} at {off}")
            yield
    return reader


def direct(rng):
    """Past the page cache: each read is a request."""
    fd = os.open(f"{mounted}/{MIDDLE}", os.O_RDONLY | os.O_DIRECT)
    buf = mmap.mmap(-1, 1 << 17)
    while True:
        off = rng.randrange(len(want[MIDDLE]) // 4096) * 4096
        n = os.preadv(fd, [buf], off)
        equal(buf[:n], want[MIDDLE][off:off + n], f"direct at {off}")
        equal(n, min(1 << 17, len(want[MIDDLE]) - off), "bytes of a direct read")
        yield


def reopened(name):
    def reader(rng):
        while True:
            with open(f"{mounted}/{name}", "rb") as f:
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                f.seek(rng.randrange(len(want[name])))
                at = f.tell()
                equal(f.read(70_000), want[name][at:at + 70_000], f"{name} at {at}")
            yield
    return reader


def mapped(rng):
    fd = os.open(f"{mounted}/{LARGE}", os.O_RDONLY)
    m = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    os.close(fd)
    while True:
        off = rng.randrange(len(want[LARGE]))
        equal(m[off:off + 5000], want[LARGE][off:off + 5000], f"mapping at {off}")
        m.madvise(mmap.MADV_DONTNEED)
        yield


class Dirent(ctypes.Structure):
    _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("reclen", ctypes.c_ushort),
                ("type", ctypes.c_ubyte), ("name", ctypes.c_char * 256)]


libc = ctypes.CDLL(None, use_errno=True)


def entries(folder):
    """Names of an open directory in small steps, so that kills fall between them."""
    buf = ctypes.create_string_buffer(256)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        while True:
            n = libc.syscall(217, fd, buf, 256)
            if n < 0:
                raise OSError(ctypes.get_errno(), f"getdents64 of {folder}")
            if n == 0:
                return
            at = 0
            while at < n:
                d = Dirent.from_buffer_copy(buf.raw[at:at + 19].ljust(ctypes.sizeof(Dirent), b"\0"))
                yield buf.raw[at + 19:at + d.reclen].split(b"\0")[0].decode()
                at += d.reclen
            time.sleep(0.01)
    finally:
        os.close(fd)


def listed(folder, names):
    def reader(_):
        while True:
            found = []
            for name in entries(folder):
                found.append(name)
                yield
            equal(sorted(set(found) - {".", ".."}), sorted(names()), f"names in {folder}")
    return reader


def statted(rng):
    before = {n: os.stat(f"{mounted}/{n}") for n in want}
    fd = os.open(f"{mounted}/{SMALL}", os.O_RDONLY)
    while True:
        for n, st in before.items():
            equal(os.stat(f"{mounted}/{n}"), st, f"stat of {n}")
        equal(os.fstat(fd).st_ino, before[SMALL].st_ino, "fstat")
        equal(os.path.exists(f"{mounted}/missing-{rng.random()}"), False, "a name that is not there")
        equal(os.readlink(f"{mounted}/link"), "large.bin", "a link")
        os.statvfs(mounted)
        yield


def view(rng):
    """A rank's view of the checkpoint, held and opened anew; a registered layout."""
    folder = f"{root}/views/acme/llama@r1/both/rank-00001"
    path = f"{folder}/{sorted(os.listdir(folder))[-1]}"
    fd = os.open(path, os.O_RDONLY)
    document = os.open(f"{root}/layouts/both.json", os.O_RDONLY)
    whole, text = pread_all(fd, 1 << 20), os.pread(document, 1 << 16, 0)
    while True:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        off = rng.randrange(len(whole))
        equal(os.pread(fd, 5000, off), whole[off:off + 5000], f"the view at {off}")
        with open(path, "rb") as f:
            equal(f.read(), whole, "the view")
        os.posix_fadvise(document, 0, 0, os.POSIX_FADV_DONTNEED)
        equal(os.pread(document, 1 << 16, 0), text, "the layout")
        yield


def kv_held(name):
    def reader(rng):
        fd = os.open(f"{kv}/{name}", os.O_RDONLY)
        while True:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            off = rng.randrange(len(objects[name]))
            equal(os.pread(fd, 100_000, off), objects[name][off:off + 100_000], f"{name} at {off}")
            yield
    return reader


def kv_reopened(rng):
    while True:
        name = rng.choice(list(objects))
        with open(f"{kv}/{name}", "rb") as f:
            equal(f.read(), objects[name], name)
        yield


def writer(prefix, done, refused):
    """Objects that are written whole, or whose close fails."""
    def reader(rng):
        i = 0
        while True:
            name, data = f"{prefix}-{i % 20}", rng.randbytes(rng.randrange(1, 200_000))
            i += 1
            try:
                with open(f"{kv}/{name}", "wb", buffering=0) as f:
                    for at in range(0, len(data), 50_000):
                        f.write(data[at:at + 50_000])
                done[name] = data
            except OSError as e:
                refused.append(e.errno)
                done.pop(name, None)
            yield
    return reader


def all_readers():
    tree = ["dir", "large.bin", "link", "many", "middle.bin"]
    return [held(LARGE), held(LARGE), held(MIDDLE), held(SMALL), direct, direct, reopened(LARGE), reopened(MIDDLE), mapped,
            listed(mounted, lambda: tree), listed(f"{mounted}/many", lambda: MANY),
            listed(f"{mounted}/..", lambda: ["llama", "llama@r1", "model", "model@r1"]),
            listed(f"{root}/tiers/remote/checkpoints/acme", lambda: ["llama@r1", "model@r1"]), statted, view,
            kv_held("small-0"), kv_held("large"), kv_reopened]


def put_objects():
    os.makedirs(kv, exist_ok=True)
    with open(f"{root}/layouts/both.json", "w", encoding="ascii") as f:
        json.dump({"format": "reshard-layout", "version": 1, "name": "both", "mesh": {"axes": [["tp", 2]]},
                   "rules": [{"match": "**", "replicate": True}]}, f)
    for name, data in objects.items():
        with open(f"{kv}/{name}", "wb") as f:
            f.write(data)


def kill(load):
    """Kills the worker at a random moment; returns when each reader has gone on."""
    deaths = lines("event=worker-died")
    time.sleep(random.Random(SEED + deaths).random() * 0.3)
    pid = worker()
    if pid is None:
        fail("there is no worker")
    os.kill(pid, signal.SIGKILL)
    until(lambda: lines("event=worker-died") > deaths, "the keeper has seen the death")
    load.progress()


def check_kills():
    """Five workers are killed under readers: no call fails, each byte is right, names stay."""
    put_objects()
    load = Load(all_readers())
    for _ in range(5):
        kill(load)
    load.stop()
    print(f"longest gap {load.gap:.2f} s")


def check_upgrade():
    """The program is replaced under readers."""
    load = Load(all_readers())
    before = worker()
    for i in range(2):
        seen = lines("event=taken-over")
        os.kill(keeper, signal.SIGUSR2)
        until(lambda: load.failed or lines("event=taken-over") > seen, "the program was started again")
        load.progress()
    load.stop()
    if worker() in (before, None):
        fail("the worker is the same")
    print(f"longest gap {load.gap:.2f} s")


def check_writers():
    """Puts under way fail or succeed wholly; what was closed without an error is there."""
    done, refused = {}, []
    load = Load([writer(f"w{i}", done, refused) for i in range(6)] + [kv_reopened] * 4)
    for _ in range(3):
        kill(load)
    load.stop()
    print(f"{len(done)} objects, refused: {sorted(errno.errorcode[e] for e in refused)}")
    for name, data in done.items():
        with open(f"{kv}/{name}", "rb") as f:
            equal(f.read(), data, name)
    for name in os.listdir(kv):
        if name.startswith("w") and name not in done:
            with open(f"{kv}/{name}", "rb") as f:
                f.read()


def check_open_put():
    """A put that is open when the worker dies goes on, or its close fails; never half of it is seen."""
    fd = os.open(f"{kv}/half", os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, b"x" * 70_000)
    kill(Load([kv_reopened]))
    try:
        os.write(fd, b"y" * 70_000)
        os.close(fd)
        whole = True
    except OSError:
        whole = False
    equal(os.path.exists(f"{kv}/half"), whole, "the object is there")
    if whole:
        with open(f"{kv}/half", "rb") as f:
            equal(f.read(), b"x" * 70_000 + b"y" * 70_000, "the object")
    print("the put", "went on" if whole else "failed at its close")


def check_names_go():
    """What was open when a worker died is read although its key then names something else, or nothing."""
    names = {f"{what}-{size}": size for what in ("replaced", "removed", "covered", "moved") for size in (5_000, 9_500_000)}
    data, fds = {}, {}
    for name, size in names.items():
        data[name] = random.Random(name).randbytes(size)
        for path in (f"{kv}/{name}", f"{kv}/{name}.other"):
            with open(path, "wb") as f:
                f.write(data[name] if path.endswith(name) else b"other")
        evict(name)
        fds[name] = os.open(f"{kv}/{name}", os.O_RDONLY)
    kill(Load([kv_reopened]))
    for name in names:
        if name.startswith("replaced"):
            with open(f"{kv}/{name}", "wb") as f:
                f.write(b"new")
        elif name.startswith("removed"):
            os.unlink(f"{kv}/{name}")
        elif name.startswith("covered"):
            os.rename(f"{kv}/{name}.other", f"{kv}/{name}")
        else:
            os.rename(f"{kv}/{name}", f"{kv}/{name}.other")
    for name, fd in fds.items():
        equal(pread_all(fd, names[name]), data[name], name)
        os.close(fd)


def check_names_gone():
    """What had lost its name before, and was read through the daemon, went with the worker: it says so."""
    for name in ("gone-1", "gone-2"):
        with open(f"{kv}/{name}", "wb") as f:
            f.write(b"old")
    fds = [os.open(f"{kv}/gone-{i}", os.O_RDONLY) for i in (1, 2)]
    with open(f"{kv}/gone-1", "wb") as f:
        f.write(b"new")
    os.unlink(f"{kv}/gone-2")
    kill(Load([kv_reopened]))
    for fd in fds:
        equal(errno_of(os.pread, fd, 3, 0), errno.ESTALE, "a version without a name")
        os.close(fd)


def evict(name):
    """Large objects leave DRAM, so that they are read through the daemon."""
    fd = os.open(f"{kv}/{name}", os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    until(lambda: errno_of(os.unlink, f"{root}/tiers/dram/kv/t/{name}") in (0, errno.ENOENT), f"{name} leaves DRAM")


def check_stale():
    """What lived in the process alone is stale: texts of .mooncake/ and documents being written."""
    status = os.open(f"{root}/.mooncake/status", os.O_RDONLY)
    draft = os.open(f"{root}/layouts/half.json", os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(draft, b"{")
    kill(Load([kv_reopened]))
    equal(errno_of(os.pread, status, 100, 0), errno.ESTALE, "a text")
    equal(errno_of(os.write, draft, b"}"), errno.ESTALE, "a document")
    equal(errno_of(os.close, draft), errno.ESTALE, "its close")
    os.close(status)
    equal(os.path.exists(f"{root}/layouts/half.json"), False, "the document is there")
    with open(f"{root}/.mooncake/status", encoding="utf-8") as f:
        equal(json.load(f)["modes"]["takeover"], {"on": True, "why": ""}, "takeover")


def check_loop():
    """A worker that dies again and again is given up, and the mount with it."""
    while not lines("event=gave-up"):
        pid = worker()
        if pid is not None:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.005)
    until(lambda: not os.path.exists(f"/proc/{keeper}/fd/0"), "the keeper has ended")


for c in checks:
    globals()[f"check_{c}"]()
