"""Checks of kv/ in a real mount: kv_checks.py CHECK KV-DIRECTORY [ARG...]. Each states one rule."""
import ctypes
import errno
import mmap
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time

import checks
from checks import MIB, content, errno_of, expect, put, until

RDONLY, WRONLY, RDWR = os.O_RDONLY, os.O_WRONLY, os.O_RDWR
CREAT, EXCL, TRUNC, APPEND = os.O_CREAT, os.O_EXCL, os.O_TRUNC, os.O_APPEND


def some_bytes(size, seed=1):
    return random.Random(seed).randbytes(size)


def version(path):
    return os.getxattr(path, "user.mooncake.version").decode()


# What is put is what is got.

def check_put_get(kv):
    for size in (0, 1, 4095, 4096, 65535, 65536, 65537, MIB, MIB + 1, 4 * MIB + 12345, 20 * MIB):
        data = some_bytes(size, size)
        put(f"{kv}/size-{size}", data)
        expect(f"{size} bytes", content(f"{kv}/size-{size}") == data, True)
        expect(f"st_size of {size}", os.stat(f"{kv}/size-{size}").st_size, size)
    for name in ("Qwen3-8B@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@" + "ab" * 32, "with space", "ünï", "x" * 255,
                 "-leading", "a\nb", "\x01"):
        put(f"{kv}/{name}", name.encode())
        expect(f"key {name!r}", content(f"{kv}/{name}"), name.encode())
    expect("too long a name", errno_of(put, f"{kv}/{'x' * 256}", b""), "ENAMETOOLONG")


def check_long_keys(kv):
    fd, length = os.open(kv, RDONLY), len(os.path.basename(kv))
    while length + 1 + 255 < 4096:
        os.mkdir("d" * 255, dir_fd=fd)
        fd, length = os.open("d" * 255, RDONLY, dir_fd=fd), length + 1 + 255
    name = "x" * (4096 - length - 1)
    os.close(os.open(name, WRONLY | CREAT, dir_fd=fd))
    expect("4096 bytes", os.listdir(fd), [name])
    expect("4097 bytes", errno_of(os.open, name + "x", WRONLY | CREAT, dir_fd=fd), "ENAMETOOLONG")


def check_ranges(kv):
    size = 3 * MIB + 777
    data = some_bytes(size)
    rng = random.Random(5)
    for path, body in ((f"{kv}/range-large", data), (f"{kv}/range-small", data[:5000])):
        put(path, body)
        fd = os.open(path, RDONLY)
        for _ in range(200):
            off = rng.randrange(len(body) + 10)
            n = rng.choice((1, 100, 4096, 70000, 2 * MIB))
            expect(f"pread {n}@{off}", os.pread(fd, n, off) == body[off:off + n], True)
        for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
            with mmap.mmap(fd, 0, flags, mmap.PROT_READ) as m:
                expect("mapped", m[:] == body, True)
        expect("SEEK_DATA", os.lseek(fd, 10, os.SEEK_DATA), 10)
        expect("SEEK_HOLE", os.lseek(fd, 10, os.SEEK_HOLE), len(body))
        expect("beyond the end", errno_of(os.lseek, fd, len(body), os.SEEK_DATA), "ENXIO")
        os.close(fd)
        fd = os.open(path, RDONLY | os.O_DIRECT)
        buf = mmap.mmap(-1, 4 * MIB)
        n = os.preadv(fd, [buf], 0)
        expect("O_DIRECT, unaligned tail", buf[:n] == body, True)
        os.close(fd)


# Whole or not at all.

def check_unsealed(kv):
    path = f"{kv}/unsealed"
    fd = os.open(path, WRONLY | CREAT | EXCL)
    os.write(fd, b"x" * 100)
    expect("stat before close", os.stat(path).st_size, 100)
    expect("fstat", os.fstat(fd).st_size, 100)
    expect("read by others", errno_of(os.open, path, RDONLY), "ENOENT")
    expect("not listed", "unsealed" in os.listdir(kv), False)
    expect("state", os.getxattr(path, "user.mooncake.state"), b"staging")
    os.close(fd)
    expect("after close", content(path), b"x" * 100)
    expect("listed", "unsealed" in os.listdir(kv), True)


def check_old_version_while_replaced(kv):
    path = f"{kv}/old"
    put(path, b"old")
    before = version(path)
    fd = os.open(path, WRONLY | TRUNC)
    os.write(fd, b"newer bytes")
    expect("others read", content(path), b"old")
    expect("others' stat", os.stat(path).st_size, 3)
    os.close(fd)
    expect("after close", content(path), b"newer bytes")
    expect("another version", version(path) != before, True)


def check_readers_keep_version(kv):
    for size in (1000, MIB):
        path = f"{kv}/keep-{size}"
        old, new = some_bytes(size, 1), some_bytes(size + 5, 2)
        put(path, old)
        fd = os.open(path, RDONLY)
        m = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)
        expect("half", os.pread(fd, size // 2, 0) == old[:size // 2], True)
        put(path, new)
        expect("the other half", os.pread(fd, size, size // 2) == old[size // 2:], True)
        expect("size of the open file", os.fstat(fd).st_size, size)
        expect("mapping", m[:] == old, True)
        expect("new open", content(path) == new, True)
        os.unlink(path)
        expect("after unlink", os.pread(fd, size, 0) == old, True)
        expect("mapping after unlink", m[:] == old, True)
        m.close()
        os.close(fd)
        expect("gone", os.path.exists(path), False)


def check_partial_overwrite(kv):
    path = f"{kv}/sealed"
    put(path, b"sealed")
    for flags in (WRONLY, RDWR, WRONLY | APPEND, WRONLY | CREAT):
        expect(f"open {flags:o}", errno_of(os.open, path, flags), "EPERM")
    expect("truncate", errno_of(os.truncate, path, 3), "EPERM")
    expect("truncate to 0", errno_of(os.truncate, path, 0), "EPERM")
    expect("content", content(path), b"sealed")


def check_excl(kv):
    path = f"{kv}/excl"
    fd = os.open(path, WRONLY | CREAT | EXCL)
    expect("second, unsealed", errno_of(os.open, path, WRONLY | CREAT | EXCL), "EEXIST")
    os.close(fd)
    expect("second, sealed", errno_of(os.open, path, WRONLY | CREAT | EXCL), "EEXIST")
    os.unlink(path)
    os.close(os.open(path, WRONLY | CREAT | EXCL))


def check_two_writers(kv):
    """Each has a file of its own: the last close wins, whole."""
    path = f"{kv}/two"
    a = os.open(path, WRONLY | CREAT | TRUNC)
    b = os.open(path, WRONLY | CREAT | TRUNC)
    os.write(a, b"a" * 1000)
    os.write(b, b"b" * 2000)
    os.close(b)
    expect("first close", content(path), b"b" * 2000)
    os.close(a)
    expect("last close", content(path), b"a" * 1000)


def check_join_writer(kv):
    """A second open without O_TRUNC writes into the same file."""
    path = f"{kv}/join"
    a = os.open(path, RDWR | CREAT)
    os.write(a, b"0123456789")
    b = os.open(path, WRONLY)
    os.pwrite(b, b"AB", 4)
    expect("seen through the other", os.pread(a, 10, 0), b"0123AB6789")
    os.close(a)
    expect("not sealed while open", errno_of(os.open, path, RDONLY), "ENOENT")
    os.close(b)
    expect("sealed", content(path), b"0123AB6789")


def check_pwrite_truncate(kv):
    path = f"{kv}/pwrite"
    want = bytearray(300000)
    fd = os.open(path, RDWR | CREAT)
    rng = random.Random(7)
    os.ftruncate(fd, len(want))
    for _ in range(200):
        off = rng.randrange(len(want) - 5000)
        piece = rng.randbytes(rng.randrange(5000))
        os.pwrite(fd, piece, off)
        want[off:off + len(piece)] = piece
    os.ftruncate(fd, 200001)
    os.ftruncate(fd, 250000)
    del want[200001:]
    want += bytes(250000 - len(want))
    os.pwrite(fd, b"end", 260000)
    want += bytes(10000) + b"end"
    expect("read back", os.pread(fd, 400000, 0) == want, True)
    os.posix_fallocate(fd, 0, 270000)
    want += bytes(270000 - len(want))
    os.close(fd)
    expect("sealed", content(path) == want, True)


def check_append(kv):
    path = f"{kv}/append"
    with open(path, "ab") as f:
        for i in range(100):
            f.write(b"%06d" % i)
            f.flush()
    expect("appended", content(path), b"".join(b"%06d" % i for i in range(100)))


def check_dup_fork(kv):
    path = f"{kv}/dup"
    fd = os.open(path, WRONLY | CREAT)
    other = os.dup(fd)
    os.write(fd, b"one ")
    os.close(fd)
    expect("a duplicate is open", errno_of(os.open, path, RDONLY), "ENOENT")
    os.write(other, b"two ")
    pid = os.fork()
    if pid == 0:
        os.write(other, b"child ")
        os._exit(0)
    os.waitpid(pid, 0)
    os.write(other, b"parent")
    os.close(other)
    expect("all of it", content(path), b"one two child parent")


def check_shell(kv):
    """FLUSH is not the end: the first command's exit flushes."""
    script = f"(echo a; bash -c 'echo b'; cat /dev/null; bash -c 'sleep 0.2; echo c') >'{kv}/shell'; cat '{kv}/shell'"
    expect("( a; b; c ) > f", subprocess.run(["bash", "-c", script], capture_output=True).stdout, b"a\nb\nc\n")
    script = f"for i in $(seq 200); do echo $i >'{kv}/loop'; read -r x <'{kv}/loop'; [ $x = $i ] || exit 1; done"
    expect("write, close, read at once", subprocess.run(["bash", "-c", script]).returncode, 0)


def check_exit_without_close(kv):
    """exit() with an open file is an end like close()."""
    script = f"import os\nos.write(os.open('{kv}/exit', os.O_WRONLY | os.O_CREAT), b'whole')\nos._exit(3)"
    subprocess.run([sys.executable, "-c", script])
    expect("published", content(f"{kv}/exit"), b"whole")


KILLED = """
import os, sys, threading, mmap
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_TRUNC)
if sys.argv[3] == "map":
    os.ftruncate(fd, 1 << 20)
    m = mmap.mmap(fd, 1 << 20)
    m[:] = b"k" * (1 << 20)
else:
    os.write(fd, b"k" * 100000)
if sys.argv[3] == "threads":
    [threading.Thread(target=lambda: threading.Event().wait()).start() for _ in range(4)]
print("ready", flush=True)
threading.Event().wait()
"""


def check_killed_writers(kv):
    """Killed in the middle by whatever signal: nothing is published, the old version stays."""
    put(f"{kv}/killed-old", b"old")
    for sig in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGINT):
        for how in ("write", "threads", "map"):
            for name in ("killed-new", "killed-old"):
                path = f"{kv}/{name}"
                script = KILLED
                if sig == signal.SIGINT:
                    script = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\n" + script
                p = subprocess.Popen([sys.executable, "-c", script, path, "", how], stdout=subprocess.PIPE)
                p.stdout.readline()
                p.send_signal(sig)
                p.wait()
                p.stdout.close()
                if name == "killed-old":
                    expect(f"old version after {sig.name} {how}", content(path), b"old")
                else:
                    until(f"gone after {sig.name} {how}", lambda path=path: not os.path.exists(path))


def check_killed_after_close(kv):
    """What was closed before the kill is published."""
    script = f"import os\nopen('{kv}/closed', 'wb').write(b'whole')\nos.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", script])
    expect("published", content(f"{kv}/closed"), b"whole")


def check_shared_mapping(kv):
    """Stores through a mapping that outlives the close do not reach the sealed object."""
    for size in (10000, MIB):
        path = f"{kv}/mapping-{size}"
        fd = os.open(path, RDWR | CREAT)
        os.ftruncate(fd, size)
        m = mmap.mmap(fd, size)
        m[:] = b"a" * size
        os.close(fd)
        # In passthrough the mapping holds the backing file only; otherwise it holds ours open.
        end = time.monotonic() + 2
        while time.monotonic() < end and errno_of(os.open, path, RDONLY) == "ENOENT":
            time.sleep(0.01)
        sealed = os.path.exists(path) and errno_of(os.open, path, RDONLY) == "no error"
        m[0:4] = b"late"
        if sealed:
            expect("the object", content(path) == b"a" * size, True)
        m.close()
        until("sealed", lambda path=path: errno_of(os.open, path, RDONLY) == "no error")
        if not sealed:
            expect("the object", content(path) == b"late" + b"a" * (size - 4), True)
        expect("again", len(content(path)), size)


# Names.

def check_rename(kv):
    os.makedirs(f"{kv}/rn/sub", exist_ok=True)
    put(f"{kv}/rn/a", b"A" * 100000)
    was = version(f"{kv}/rn/a")
    os.rename(f"{kv}/rn/a", f"{kv}/rn/sub/b")
    expect("moved", content(f"{kv}/rn/sub/b"), b"A" * 100000)
    expect("no copy", version(f"{kv}/rn/sub/b"), was)
    expect("old name", os.path.exists(f"{kv}/rn/a"), False)
    put(f"{kv}/rn/c", b"C")
    fd = os.open(f"{kv}/rn/c", RDONLY)
    os.replace(f"{kv}/rn/sub/b", f"{kv}/rn/c")
    expect("over an existing key", content(f"{kv}/rn/c"), b"A" * 100000)
    expect("its reader", os.pread(fd, 10, 0), b"C")
    os.close(fd)
    put(f"{kv}/rn/d", b"D")
    libc = ctypes.CDLL(None, use_errno=True)
    for flags, want in ((1, errno.EEXIST), (2, errno.EINVAL)):
        r = libc.renameat2(-100, f"{kv}/rn/d".encode(), -100, f"{kv}/rn/c".encode(), flags)
        expect(f"renameat2 {flags}", (r, ctypes.get_errno()), (-1, want))
    expect("directory", errno_of(os.rename, f"{kv}/rn/sub", f"{kv}/rn/sub2"), "EXDEV")
    expect("missing", errno_of(os.rename, f"{kv}/rn/nope", f"{kv}/rn/x"), "ENOENT")
    expect("onto a directory", errno_of(os.rename, f"{kv}/rn/c", f"{kv}/rn/sub"), "EISDIR")


def check_rename_unsealed(kv):
    fd = os.open(f"{kv}/u1", WRONLY | CREAT)
    os.write(fd, b"first ")
    os.rename(f"{kv}/u1", f"{kv}/u2")
    expect("old name", os.path.exists(f"{kv}/u1"), False)
    os.write(fd, b"second")
    expect("new name", os.stat(f"{kv}/u2").st_size, 12)
    os.close(fd)
    expect("published there", content(f"{kv}/u2"), b"first second")
    expect("not here", os.path.exists(f"{kv}/u1"), False)


def check_unlink_unsealed(kv):
    fd = os.open(f"{kv}/gone", WRONLY | CREAT)
    os.write(fd, b"x")
    os.unlink(f"{kv}/gone")
    expect("name", os.path.exists(f"{kv}/gone"), False)
    os.write(fd, b"y")
    os.close(fd)
    put(f"{kv}/after", b"")
    expect("not published", os.path.exists(f"{kv}/gone"), False)
    put(f"{kv}/gone", b"other")
    expect("the name is free", content(f"{kv}/gone"), b"other")


def check_close_then_rename(kv):
    """close() returns before the RELEASE; rename right after it must not be early."""
    for i in range(300):
        with open(f"{kv}/.tmp", "wb") as f:
            f.write(b"%d" % i * 1000)
        os.replace(f"{kv}/.tmp", f"{kv}/final")
        expect(f"turn {i}", content(f"{kv}/final"), b"%d" % i * 1000)


def check_directories(kv):
    os.mkdir(f"{kv}/d")
    expect("again", errno_of(os.mkdir, f"{kv}/d"), "EEXIST")
    os.makedirs(f"{kv}/d/e/f")
    put(f"{kv}/d/e/f/leaf", b"leaf")
    expect("type", stat.S_ISDIR(os.stat(f"{kv}/d/e").st_mode), True)
    expect("full", errno_of(os.rmdir, f"{kv}/d/e"), "ENOTEMPTY")
    expect("no parent", errno_of(put, f"{kv}/d/nope/x", b""), "ENOENT")
    expect("file as directory", errno_of(put, f"{kv}/d/e/f/leaf/x", b""), "ENOTDIR")
    expect("unlink of one", errno_of(os.unlink, f"{kv}/d/e") in ("EISDIR", "EPERM"), True)
    fd = os.open(f"{kv}/d/e/f/open", WRONLY | CREAT)
    os.unlink(f"{kv}/d/e/f/leaf")
    expect("a put in it", errno_of(os.rmdir, f"{kv}/d/e/f"), "ENOTEMPTY")
    os.close(fd)
    os.unlink(f"{kv}/d/e/f/open")
    os.removedirs(f"{kv}/d/e/f")
    expect("gone", os.path.exists(f"{kv}/d"), False)
    expect("links", errno_of(os.symlink, "x", f"{kv}/link"), "EPERM")
    put(f"{kv}/x", b"")
    expect("hard links", errno_of(os.link, f"{kv}/x", f"{kv}/y"), "EPERM")


def check_listing(kv, count="20000"):
    """d_type without a stat, offsets that stay valid while names come and go."""
    top = f"{kv}/many"
    n = int(count)
    os.makedirs(f"{top}/dir")
    for i in range(n):
        put(f"{top}/{i:07d}.bin", b"")
    with os.scandir(top) as it:
        found = {e.name: e.is_dir(follow_symlinks=False) for e in it}
    expect("names", len(found), n + 1)
    expect("directories", [name for name, d in found.items() if d], ["dir"])
    it = os.scandir(top)
    seen = [next(it).name for _ in range(100)]
    for i in range(0, n, 2):
        if f"{i:07d}.bin" not in seen:
            os.unlink(f"{top}/{i:07d}.bin")
    put(f"{top}/new", b"")
    seen += [e.name for e in it]
    it.close()
    expect("twice", len(seen), len(set(seen)))
    missing = [i for i in range(1, n, 2) if f"{i:07d}.bin" not in set(seen)]
    expect("odd names missed", missing, [])
    ino = {e.name: e.inode() for e in os.scandir(top)}
    for name in random.Random(3).sample(sorted(ino), 50):
        expect(f"d_ino of {name}", os.stat(f"{top}/{name}").st_ino, ino[name])


def check_listed_once_closed(kv):
    """A listing that begins after a close shows the object; it does not wait for who goes on writing."""
    top = f"{kv}/closed"
    os.makedirs(f"{top}/deeper")
    for i in range(300):
        path = f"{top}/deeper/{i}" if i % 3 == 0 else f"{top}/{i}"
        put(path, b"x" * (i % 2 * 70000))
        expect(f"{i} is listed", str(i) in os.listdir(os.path.dirname(path)), True)
    fd = os.open(f"{top}/open", WRONLY | CREAT)
    os.close(os.dup(fd))  # a FLUSH
    expect("open", "open" in os.listdir(top), False)
    os.close(fd)
    expect("closed", "open" in os.listdir(top), True)


def check_times(kv):
    path = f"{kv}/times"
    ns = 1234567890_123456789
    fd = os.open(path, WRONLY | CREAT)
    os.write(fd, b"t")
    os.utime(fd, ns=(ns, ns))
    os.close(fd)
    expect("set before close", os.stat(path).st_mtime_ns, ns)
    os.utime(path, ns=(ns + 5, ns + 5))
    expect("set after close", os.stat(path).st_mtime_ns, ns + 5)
    of_dir = os.stat(kv).st_mtime_ns
    os.utime(kv, ns=(ns, ns))
    expect("of a directory", os.stat(kv).st_mtime_ns, of_dir)
    os.rename(path, f"{kv}/times2")
    expect("after rename", os.stat(f"{kv}/times2").st_mtime_ns, ns + 5)
    expect("bytes", content(f"{kv}/times2"), b"t")
    for i in range(100):
        put(path, b"x" * i)
        os.utime(path, ns=(ns + i, ns + i))
        expect(f"right after close, turn {i}", (os.stat(path).st_mtime_ns, content(path)), (ns + i, b"x" * i))
    before = time.time()
    put(f"{kv}/now", b"")
    expect("of a put", before - 1 < os.stat(f"{kv}/now").st_mtime < time.time() + 1, True)
    os.chmod(path, 0o600)
    os.chown(path, 0, 0)
    put(f"{kv}/times3", b"")
    subprocess.run(["touch", f"{kv}/times3"], check=True)


def check_xattrs(kv):
    path = f"{kv}/attributes"
    put(path, b"x" * 100000)
    get = lambda name: os.getxattr(path, f"user.mooncake.{name}").decode()
    expect("kind", get("kind"), "kv")
    expect("state", get("state") in ("dirty", "flushing", "clean"), True)
    expect("dram", int(get("resident.dram")) >= 100000, True)
    expect("nvme", get("resident.nvme").isdigit(), True)
    expect("version", len(get("version")), 32)
    expect("hits", get("hits").isdigit(), True)
    expect("pinned", get("pinned"), "0")
    os.setxattr(path, "user.mooncake.pinned", b"1")
    expect("pinned", get("pinned"), "1")
    os.setxattr(path, "user.mooncake.pinned", b"0")
    expect("pinned", get("pinned"), "0")
    expect("read-only", errno_of(os.setxattr, path, "user.mooncake.kind", b"x"), "ENOTSUP")
    expect("others", errno_of(os.setxattr, path, "user.x", b"x"), "ENOTSUP")
    expect("unknown", errno_of(os.getxattr, path, "user.mooncake.nope"), "ENODATA")
    fd = os.open(path, WRONLY | TRUNC)
    expect("of a put", errno_of(os.setxattr, fd, "user.mooncake.pinned", b"1"), "ENOTSUP")
    expect("the version before it", get("pinned"), "0")
    os.close(fd)
    r = subprocess.run(["cp", "-a", path, f"{kv}/copy"], capture_output=True, text=True)
    expect("cp -a, which copies what is listed", (r.returncode, r.stderr), (0, ""))
    names = os.listxattr(path)
    for name in ("kind", "state", "resident.dram", "resident.nvme", "hits", "pinned", "error", "version"):
        expect(f"{name} is listed", f"user.mooncake.{name}" in names, True)
    expect("of the directory", os.getxattr(kv, "user.mooncake.kind"), b"kv-directory")
    expect("error", os.getxattr(kv, "user.mooncake.error"), b"")


def check_statvfs(kv, quota):
    put(f"{kv}/space", b"x" * MIB)
    s = os.statvfs(kv)
    expect("the quota", s.f_blocks * s.f_frsize, int(quota))
    expect("free", s.f_bavail <= s.f_blocks, True)
    expect("inodes, which df -i leaves out", (s.f_files, s.f_ffree), (0, 0))


def check_replaced_all_the_time(kv):
    """Readers of a key that is replaced all the time see whole versions and no error."""
    for size in (1000, 200000):
        path = f"{kv}/hot-{size}"
        put(path, b"0" * size)
        stop = threading.Event()
        errors = []

        def write():
            i = 0
            while not stop.is_set():
                i += 1
                body = b"%d" % (i % 10) * (size + i % 7)
                if i % 2:
                    put(path, body)
                else:
                    put(f"{path}.tmp", body)
                    os.replace(f"{path}.tmp", path)

        def read():
            while not stop.is_set():
                try:
                    got = content(path)
                except OSError as e:
                    errors.append(repr(e))
                    return
                if len(set(got)) != 1 or not size <= len(got) < size + 7:
                    errors.append(f"{len(got)} bytes of {set(got)}")
                    return

        threads = [threading.Thread(target=f) for f in (write, read, read, read)]
        for t in threads:
            t.start()
        stop.wait(1)
        stop.set()
        for t in threads:
            t.join()
        expect("errors", errors, [])


def check_fsync(kv):
    path = f"{kv}/fsync"
    fd = os.open(path, WRONLY | CREAT)
    os.write(fd, b"durable")
    os.fsync(fd)
    os.write(fd, b" more")
    os.fdatasync(fd)
    os.close(fd)
    expect("content", content(path), b"durable more")
    fd = os.open(path, RDONLY)
    os.fsync(fd)
    os.close(fd)


def check_full_at_stop(kv, daemon):
    """A put that waits for room gets an error when the daemon stops."""
    held, errors, since = [], [], [time.monotonic()]

    def work():
        try:
            while True:
                since[0] = time.monotonic()
                held.append(os.open(f"{kv}/stop-{len(held)}", WRONLY | CREAT))
                os.write(held[-1], bytes(8 * MIB))
        except OSError as e:
            errors.append(e)

    t = threading.Thread(target=work)
    t.start()
    until("an open waits for room", lambda: time.monotonic() - since[0] > 1)
    expect("waits", errors, [])
    os.kill(int(daemon), signal.SIGTERM)
    t.join()
    expect("fails", len(errors), 1)


def fill(kv):
    """Starts puts until CREATE, which waits for room, gives up; the descriptors and the error."""
    held = []
    while True:
        try:
            held.append(os.open(f"{kv}/full-{len(held)}", WRONLY | CREAT))
        except OSError as e:
            return held, e
        try:
            os.write(held[-1], bytes(8 * MIB))
        except OSError as e:
            return held, e


def io_of(fd):
    return os.getxattr(f"/proc/self/fd/{fd}", "user.mooncake.io").decode()


def check_io(kv, mode):
    """How this client's put is written."""
    with open(f"{kv}/io", "wb") as f:
        expect("mode", io_of(f.fileno()), mode)
        f.write(b"some")
    expect("its bytes", content(f"{kv}/io"), b"some")


def check_io_killed(kv, worker):
    """A large put over the death of the daemon's worker."""
    data = some_bytes(MIB)
    with open(f"{kv}/io", "wb", buffering=0) as f:
        for i in range(64):
            if i == 32:
                os.kill(int(worker), signal.SIGKILL)
            expect("written", f.write(data), MIB)
        expect("mode", io_of(f.fileno()), "cached")
    with open(f"{kv}/io", "rb") as f:
        for i in range(64):
            expect(f"MiB {i}", f.read(MIB) == data, True)


def let_go(held):
    """Closes what fill wrote: one that was under way when memory was full to the last page says so."""
    for fd in held:
        expect("closed, or not published", errno_of(os.close, fd) in ("no error", "ENOSPC"), True)


def expect_way_out(reason):
    """Tier and what can be done."""
    expect(f"tier and way out in: {reason}", "kv: DRAM" in reason and "--kv-dram" in reason, True)


def check_full_write(kv):
    """A file that grows past the memory that is left: the write fails, and kv/ says why."""
    fd = os.open(f"{kv}/grows", WRONLY | CREAT)
    error = None
    while error is None:
        try:
            os.write(fd, bytes(8 * MIB))
        except OSError as e:
            error = e
    expect("error", errno.errorcode[error.errno], "ENOSPC")
    expect("a close of a duplicate", errno_of(os.close, os.dup(fd)), "ENOSPC")
    reason = os.getxattr(kv, "user.mooncake.error").decode()
    expect(f"what failed in: {reason}", "writ" in reason, True)
    expect_way_out(reason)
    os.ftruncate(fd, 1000)
    expect("it stays so", errno_of(os.close, os.dup(fd)), "ENOSPC")
    os.ftruncate(fd, 0)
    os.pwrite(fd, b"anew", 0)
    os.close(fd)
    expect("written anew", content(f"{kv}/grows"), b"anew")
    expect("forgotten", os.getxattr(f"{kv}/grows", "user.mooncake.error"), b"")


def check_full(kv):
    """Past the bound CREATE waits, then ENOSPC; the reason can be read; others go on meanwhile."""
    put(f"{kv}/before", b"before")
    held, error = fill(kv)
    expect("error", errno.errorcode[error.errno], "ENOSPC")
    reason = os.getxattr(kv, "user.mooncake.error").decode()
    expect("the reason names the bytes", "wait to be flushed" in reason, True)
    expect_way_out(reason)
    expect("reads go on", content(f"{kv}/before"), b"before")
    expect("no error of another file", os.getxattr(f"{kv}/before", "user.mooncake.error"), b"")
    try:
        os.close(os.open(f"{kv}/before", WRONLY | os.O_TRUNC))
    except OSError as e:
        expect("not replaced", errno.errorcode[e.errno], "ENOSPC")
    reason = os.getxattr(f"{kv}/before", "user.mooncake.error").decode()
    expect("the file says why", "no room" in reason, True)
    # On a busy machine more than one CREATE may wait in vain before there is room.
    waiter = subprocess.Popen(["bash", "-c", f"until echo late >'{kv}/late'; do :; done"],
                              stderr=subprocess.DEVNULL)
    for _ in range(50):
        expect("a name in the same directory", os.path.exists(f"{kv}/nope-{_}"), False)
        expect("listing", "before" in os.listdir(kv), True)
    expect("beside who waits for room", waiter.poll(), None)
    expect("not there yet", os.path.exists(f"{kv}/late"), False)  # which nobody may remember
    let_go(held)
    expect("goes on when there is room", waiter.wait(), 0)
    expect("its bytes", content(f"{kv}/late"), b"late\n")
    put(f"{kv}/before", b"after")
    expect("replaced", content(f"{kv}/before"), b"after")
    expect("forgotten", os.getxattr(f"{kv}/before", "user.mooncake.error"), b"")


def check_full_excl(kv):
    """The same with O_EXCL, which waits within CREATE."""
    held, _ = fill(kv)
    script = f"set -C; until echo x >'{kv}/excl'; do [ ! -e '{kv}/excl' ] || exit 1; done"
    waiter = subprocess.Popen(["bash", "-c", script], stderr=subprocess.DEVNULL)
    let_go(held)
    expect("goes on when there is room", waiter.wait(), 0)
    expect("its bytes", content(f"{kv}/excl"), b"x\n")


checks.main(globals())
