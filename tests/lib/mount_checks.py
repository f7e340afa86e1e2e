"""Checks of a mounted revision against the tree it was imported from: mount_checks.py CHECK SOURCE MOUNTED."""
import ctypes
import errno
import mmap
import os
import random
import stat
import subprocess
import sys
import threading
import time

from checks import MIB, content, errno_of, expect, until

BIG = 20 * MIB + 12345
MANY = 10000


def make(source):
    rng = random.Random(1)
    os.makedirs(f"{source}/many")
    os.makedirs(f"{source}/deep/er/and/deeper")
    files = {
        "big.bin": rng.randbytes(BIG),
        "two.bin": rng.randbytes(2 * MIB),
        "config.json": b'{"architectures": ["None"]}\n',
        "empty": b"",
        "deep/er/and/deeper/leaf": b"leaf",
        "name with spaces and ünïcode": b"x",
    }
    for i in range(MANY):
        files[f"many/file-{i:05d}"] = b"%d\n" % i
    for name, data in files.items():
        with open(f"{source}/{name}", "wb") as f:
            f.write(data)
    with open(f"{source}/holes", "wb") as f:
        f.truncate(8 * MIB)
        f.seek(3 * MIB)
        f.write(b"island" * 1000)
    os.symlink("big.bin", f"{source}/link")
    os.chmod(f"{source}/config.json", 0o640)
    os.chmod(f"{source}/two.bin", 0o755)
    os.utime(f"{source}/two.bin", ns=(10**18 + 1, 10**18 + 123456789))


def check_attributes(source, mounted):
    for top, dirs, files in os.walk(source):
        there = top.replace(source, mounted, 1)
        expect(f"names in {there}", sorted(os.listdir(there)), sorted(dirs + files))
        for name in dirs + files:
            a, b = os.lstat(f"{top}/{name}"), os.lstat(f"{there}/{name}")
            expect(f"type of {name}", stat.S_IFMT(b.st_mode), stat.S_IFMT(a.st_mode))
            if stat.S_ISREG(a.st_mode):
                expect(f"mode of {name}", b.st_mode & 0o777, a.st_mode & 0o555)
                expect(f"size of {name}", b.st_size, a.st_size)
                expect(f"mtime of {name}", b.st_mtime_ns, a.st_mtime_ns)
            if stat.S_ISLNK(a.st_mode):
                expect(f"target of {name}", os.readlink(f"{there}/{name}"), os.readlink(f"{top}/{name}"))
    blocks = os.stat(f"{mounted}/holes").st_blocks
    if not 0 < blocks * 512 < 3 * MIB:
        raise SystemExit(f"st_blocks of a sparse file: {blocks}")
    for entry in os.scandir(mounted):
        expect(f"d_ino of {entry.name}", entry.inode(), os.lstat(entry.path).st_ino)


def check_missing(source, mounted):
    top = os.path.dirname(mounted)
    for path in ("nope", "many/nope", "config.json/x", "x" * 256):
        want = {"config.json/x": "ENOTDIR", "x" * 256: "ENAMETOOLONG"}.get(path, "ENOENT")
        expect(path[:20], errno_of(os.stat, f"{mounted}/{path}"), want)
    for path in ("nope", "nope@r1", "model@nope", "model@", "@"):
        expect(path, errno_of(os.stat, f"{top}/{path}"), "ENOENT")
    expect("organisation", errno_of(os.stat, f"{os.path.dirname(top)}/nope"), "ENOENT")
    expect("below the root", errno_of(os.stat, f"{mounted}/../../../nope"), "ENOENT")


def check_bytes(source, mounted):
    for name in ("big.bin", "two.bin", "config.json", "empty", "holes", "link", "deep/er/and/deeper/leaf"):
        expect(f"bytes of {name}", content(f"{mounted}/{name}") == content(f"{source}/{name}"), True)
    many = os.listdir(f"{source}/many") if os.path.exists(f"{source}/many") else []
    for name in random.Random(2).sample(many, min(len(many), 300)):
        expect(name, content(f"{mounted}/many/{name}"), content(f"{source}/many/{name}"))


def check_mmap(source, mounted):
    want = content(f"{source}/big.bin")
    for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
        fd = os.open(f"{mounted}/big.bin", os.O_RDONLY)
        with mmap.mmap(fd, 0, flags, mmap.PROT_READ) as m:
            os.close(fd)
            expect("mapped bytes", m[:] == want, True)


def read_direct(path, size):
    """All of the file in 1 MiB O_DIRECT reads; the last one is short."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buf = mmap.mmap(-1, MIB)
    got = b""
    while True:
        n = os.preadv(fd, [buf], len(got))
        if n == 0:
            break
        got += buf[:n]
        if n < MIB:
            expect("only the tail is short", len(got), size)
            break
    os.close(fd)
    return got


def check_direct(source, mounted):
    want = content(f"{source}/big.bin")
    expect("O_DIRECT bytes", read_direct(f"{mounted}/big.bin", len(want)) == want, True)


def check_seek(source, mounted):
    a = os.open(f"{source}/holes", os.O_RDONLY)
    b = os.open(f"{mounted}/holes", os.O_RDONLY)
    end = 8 * MIB

    def seek(fd, off, whence):
        try:
            return os.lseek(fd, off, whence)
        except OSError as e:
            return errno.errorcode[e.errno]

    data = seek(b, 0, os.SEEK_DATA)
    if not 0 < data <= 3 * MIB:
        raise SystemExit(f"SEEK_DATA over the first hole: {data}")
    hole = seek(b, 3 * MIB, os.SEEK_HOLE)
    if not 3 * MIB + 6000 <= hole < end:
        raise SystemExit(f"SEEK_HOLE after the island: {hole}")
    expect("SEEK_HOLE in a hole", seek(b, 100, os.SEEK_HOLE), 100)
    expect("SEEK_DATA in data", seek(b, 3 * MIB + 5, os.SEEK_DATA), 3 * MIB + 5)
    for off, whence in ((hole, os.SEEK_DATA), (end, os.SEEK_HOLE), (end, os.SEEK_DATA), (end + 5, os.SEEK_DATA)):
        expect(f"lseek {off} {whence}", seek(b, off, whence), "ENXIO")
    os.close(a)
    os.close(b)
    fd = os.open(f"{mounted}/two.bin", os.O_RDONLY)
    expect("a dense file's hole is its end", os.lseek(fd, 0, os.SEEK_HOLE), 2 * MIB)
    os.close(fd)
    fd = os.open(f"{mounted}/empty", os.O_RDONLY)
    expect("an empty file", seek(fd, 0, os.SEEK_DATA), "ENXIO")
    os.close(fd)


def check_xattrs(source, mounted):
    big = f"{mounted}/big.bin"
    names = set(os.listxattr(big))
    for name in ("kind", "digest", "resident.dram", "resident.nvme", "io", "source", "state"):
        if f"user.mooncake.{name}" not in names:
            raise SystemExit(f"not listed: {name} in {names}")
    for name in names:
        value = os.getxattr(big, name)
        if (not value and name != "user.mooncake.error") or b"\n" in value:
            raise SystemExit(f"{name} = {value!r}")
    expect("kind", os.getxattr(big, "user.mooncake.kind"), b"checkpoint")
    expect("digest", len(os.getxattr(big, "user.mooncake.digest")), 64)
    expect("a revision's digest", len(os.getxattr(mounted, "user.mooncake.digest")), 64)
    expect("source", os.getxattr(big, "user.mooncake.source").startswith(b"dir:"), True)
    content(big)
    expect("resident after a read", os.getxattr(big, "user.mooncake.resident.dram"), b"%d" % BIG)
    for name in ("security.selinux", "security.capability", "system.posix_acl_access", "user.other",
                 "user.mooncake.nope"):
        expect(name, errno_of(os.getxattr, big, name), "ENODATA")
    libc = ctypes.CDLL(None, use_errno=True)
    buf = ctypes.create_string_buffer(3)
    expect("a small buffer", libc.getxattr(big.encode(), b"user.mooncake.kind", buf, 3), -1)
    expect("a small buffer's errno", ctypes.get_errno(), errno.ERANGE)


def check_readonly(source, mounted):
    file, new, top = f"{mounted}/config.json", f"{mounted}/new", mounted + "/../.."
    calls = [
        (os.open, file, os.O_WRONLY), (os.open, file, os.O_RDWR), (os.open, file, os.O_RDONLY | os.O_TRUNC),
        (os.open, new, os.O_WRONLY | os.O_CREAT), (os.mkdir, new), (os.rmdir, f"{mounted}/many"),
        (os.unlink, file), (os.rename, file, new), (os.link, file, new), (os.symlink, "x", new),
        (os.mknod, new), (os.chmod, file, 0o600), (os.chown, file, 1, 1), (os.utime, file),
        (os.truncate, file, 0), (os.setxattr, file, "user.x", b"1"), (os.removexattr, file, "user.x"),
        (os.mkdir, f"{top}/new"), (os.mkdir, f"{top}/../new"), (os.unlink, f"{top}/acme/model"),
        (os.rename, f"{top}/acme", f"{top}/b"),
    ]
    for call, *args in calls:
        expect(f"{call.__name__}{tuple(args)}", errno_of(call, *args), "EROFS")
    expect("unchanged", content(file), content(f"{source}/config.json"))


def check_threads(source, mounted):
    """64 threads fault random pages of one mapping."""
    want = content(f"{source}/big.bin")
    seed = int(time.time())
    print("seed", seed)
    fd = os.open(f"{mounted}/big.bin", os.O_RDONLY)
    m = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)
    bad = []

    def fault(i):
        rng = random.Random(seed + i)
        for _ in range(100):
            off = rng.randrange(BIG - 4096)
            if m[off:off + 4096] != want[off:off + 4096]:
                bad.append(off)

    threads = [threading.Thread(target=fault, args=(i,)) for i in range(64)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    expect("wrong pages", bad, [])


def check_forks(source, mounted):
    """8 processes share one descriptor and read disjoint blocks."""
    want = content(f"{source}/big.bin")
    fd = os.open(f"{mounted}/big.bin", os.O_RDONLY)
    pids = []
    for i in range(8):
        pid = os.fork()
        if pid == 0:
            offsets = range(i * MIB, BIG, 8 * MIB)
            os._exit(0 if all(os.pread(fd, MIB, o) == want[o:o + MIB] for o in offsets) else 1)
        pids.append(pid)
    expect("children", [os.waitpid(pid, 0)[1] for pid in pids], [0] * 8)


def check_churn(source, mounted, seconds):
    """Processes open, map, read and close the same files while modes change: right bytes, never an error."""
    seed = int(time.time())
    print("seed", seed)
    names = ["big.bin", "two.bin", "config.json"]
    want = {name: content(f"{source}/{name}") for name in names}
    end = time.monotonic() + float(seconds)

    def mapped(rng, path, data):
        fd = os.open(path, os.O_RDONLY)
        with mmap.mmap(fd, 0, rng.choice((mmap.MAP_SHARED, mmap.MAP_PRIVATE)), mmap.PROT_READ) as m:
            os.close(fd)
            if rng.random() < 0.5:
                drop_pages(path)
            for _ in range(20):
                off = rng.randrange(len(data))
                if m[off:off + 4096] != data[off:off + 4096]:
                    raise ValueError(f"{path}: mapped bytes at {off}")

    def read(rng, path, data):
        fd = os.open(path, os.O_RDONLY)
        if rng.random() < 0.5:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        for _ in range(10):
            off = rng.randrange(len(data))
            if os.pread(fd, 300000, off) != data[off:off + 300000]:
                raise ValueError(f"{path}: bytes at {off}")
        os.close(fd)

    def whole(rng, path, data):
        if content(path) != data:
            raise ValueError(f"{path}: bytes")

    def press(rng, path, data):
        large = f"{mounted}/../large@r1/large.bin"
        drop_pages(large)
        fd = os.open(large, os.O_RDONLY)
        for _ in range(20):
            os.pread(fd, MIB, rng.randrange(99 * MIB))
        os.close(fd)

    def worker(i):
        rng = random.Random(seed + i)
        n = 0
        while time.monotonic() < end:
            name = rng.choice(names)
            rng.choice((mapped, read, whole, press))(rng, f"{mounted}/{name}", want[name])
            n += 1
        print(f"worker {i}: {n} rounds", flush=True)

    pids = []
    for i in range(8):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                worker(i)
                code = 0
            finally:
                sys.stdout.flush()
                if code:
                    import traceback
                    traceback.print_exc()
                os._exit(code)
        pids.append(pid)
    expect("workers", [os.waitpid(pid, 0)[1] for pid in pids], [0] * 8)


def check_reload(source, mounted):
    """A second load of everything, from other processes too, is served by the kernel alone."""
    names = ["big.bin", "two.bin", "holes", "config.json"]
    for _ in range(3):
        for name in names:
            expect(name, content(f"{mounted}/{name}") == content(f"{source}/{name}"), True)


def check_held(source, mounted):
    """Maps a resident file, closes it, says so; at each line of input the mapping must still be right."""
    want = content(f"{source}/big.bin")
    content(f"{mounted}/big.bin")
    mode = io_mode(f"{mounted}/big.bin")
    fd = os.open(f"{mounted}/big.bin", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)  # mmap.mmap would keep a copy of the descriptor
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    address = libc.mmap(None, BIG, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    os.close(fd)
    print(mode, flush=True)
    for line in sys.stdin:
        right = ctypes.string_at(address, BIG) == want
        print("right" if right else "wrong", flush=True)


def check_press(source, mounted):
    """Reads more than the DRAM tier holds."""
    large = f"{mounted}/../large@r1/large.bin"
    for _ in range(2):
        drop_pages(large)
        if len(content(large)) != 100 * MIB:
            raise SystemExit("short")


def check_outage(source, mounted, *control):
    """The remote stops answering: metadata goes on, readers get EIO, and reads work when it is back.

    Metadata that waited for the remote would be answered when the readers are: at the deadline.
    """
    want = content(f"{source}/big.bin")
    fd = os.open(f"{mounted}/big.bin", os.O_RDONLY)
    expect("before", os.pread(fd, 4096, 0) == want[:4096], True)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    top = os.path.dirname(mounted)
    probes = [
        lambda: os.stat(f"{mounted}/config.json"), lambda: os.listdir(mounted),
        lambda: os.path.exists(f"{mounted}/nope"),
        lambda: os.readlink(f"{top}/model"), lambda: os.listdir(top), lambda: os.statvfs(mounted),
        lambda: os.getxattr(f"{mounted}/two.bin", "user.mooncake.io"),
        lambda: os.close(os.open(f"{mounted}/two.bin", os.O_RDONLY)),
    ]
    for probe in probes:
        probe()
    subprocess.run([*control, "hang"], check=True)
    results = []

    def reader(i):
        try:
            os.pread(fd, 4096, (4 + i % 16) * MIB + 8192 * i)
            results.append("data")
        except OSError as e:
            results.append(errno.errorcode[e.errno])

    readers = [threading.Thread(target=reader, args=(i,)) for i in range(64)]
    for t in readers:
        t.start()
    rounds, beside = 0, 0
    while any(t.is_alive() for t in readers):
        for probe in probes:
            probe()
        rounds += 1
        if "EIO" not in results:
            beside = rounds
        readers[0].join(0.01)
    print(f"{rounds} rounds of metadata, {beside} of them before the first reader was given up")
    if beside == 0:
        raise SystemExit("metadata waits for the remote")
    kinds = set(results)
    if not kinds <= {"EIO", "data"} or "EIO" not in kinds:
        raise SystemExit(f"readers: {kinds}")
    subprocess.run([*control, "pass"], check=True)
    until("a good read", lambda: errno_of(os.pread, fd, MIB, 12 * MIB) == "no error")
    expect("after", os.pread(fd, MIB, 12 * MIB) == want[12 * MIB:13 * MIB], True)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_NORMAL)
    expect("all of it", content(f"{mounted}/big.bin") == want, True)


def check_killed(source, mounted, *control):
    """A client that waits for the remote can be killed, and does not wait for the deadline (two minutes)."""
    subprocess.run([*control, "hang"], check=True)
    pid = os.fork()
    if pid == 0:
        os.stat(f"{os.path.dirname(mounted)}/unheard-of")
        os._exit(0)
    while not in_request(pid):
        time.sleep(0.01)
    begin = time.monotonic()
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    took = time.monotonic() - begin
    print(f"gone {took:.2f} s after SIGKILL")
    if took > 60:
        raise SystemExit("a killed client waits for the remote")


def in_request(pid):
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rsplit(")", 1)[1].split()[0] in "SD"


def io_mode(path):
    return os.getxattr(path, "user.mooncake.io").decode()


def drop_pages(path):
    """So that the next read comes to the daemon."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def check_modes(source, mounted, passthrough):
    """Open cold, warm, open again, map both, push it out, open again: right bytes, never EIO."""
    path, other = f"{mounted}/big.bin", f"{mounted}/../large@r1/large.bin"
    want = content(f"{source}/big.bin")
    maps = []

    def open_and_map(expected):
        fd = os.open(path, os.O_RDONLY)
        if expected:
            expect("io", io_mode(path), expected)
        maps.append(mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ))
        os.close(fd)

    open_and_map("cached")
    expect("cold bytes", maps[0][:] == want, True)
    open_and_map("cached")
    maps[1].close()
    maps[0].close()
    maps.clear()
    warm = "passthrough" if passthrough == "on" else "cached"
    while io_mode(path) != warm:  # the kernel sends the last close some time after munmap
        time.sleep(0.01)
    for _ in range(2):
        open_and_map(warm)
    expect("O_DIRECT", read_direct(path, BIG) == want, True)
    content(other)
    for m in maps:
        expect("bytes while held", m[:] == want, True)
        m.close()
    maps.clear()
    for _ in range(3):
        drop_pages(other)
        content(other)
        drop_pages(path)
        open_and_map(None)
        expect("bytes after pressure", maps[0][:] == want and content(path) == want, True)
        maps.pop().close()


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2])
    else:
        globals()["check_" + sys.argv[1]](*sys.argv[2:])
