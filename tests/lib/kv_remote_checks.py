"""Checks of kv/ above a remote: kv_remote_checks.py CHECK KV-DIRECTORY [ARG...]. Bodies follow from the key."""
import errno
import hashlib
import os
import random
import threading

import checks
from checks import MIB, attribute, content, expect, put, until

SIZES = (0, 1, 65535, 65536, MIB, 4 * MIB + 7, 12 * MIB + 1)


def body(name, size, version=1):
    return random.Random(f"{name} {version}").randbytes(size)


def read(path):
    """Its bytes, or the name of the error."""
    try:
        return content(path)
    except OSError as e:
        return errno.errorcode[e.errno]


def on_remote(key):
    """Where the object of a key lies below the remote's root."""
    h = hashlib.sha256(key.encode()).hexdigest()
    return f"kv/{h[:2]}/{h[2:4]}/{h}"


def copied(path):
    until(f"{path} has a copy on the remote", lambda: attribute(path, "replicas") == "1")


def evicted(path):
    """Takes it out of DRAM, as soon as nobody has it open any more."""

    def gone():
        try:
            os.setxattr(path, "user.mooncake.evict", b"1")
        except OSError as e:
            expect("evict", errno.errorcode[e.errno], "EBUSY")
        return attribute(path, "resident.dram") == "0"

    until(f"{path} is evicted", gone)


def check_put(kv):
    """Puts of all sizes; each gets a copy on the remote."""
    for size in SIZES:
        put(f"{kv}/s{size}", body(f"s{size}", size))
    for size in SIZES:
        copied(f"{kv}/s{size}")


def check_get(kv):
    """What was evicted comes back from the remote, whole and in pieces."""
    for size in SIZES:
        path = f"{kv}/s{size}"
        evicted(path)
        expect(f"{size} bytes", read(path) == body(f"s{size}", size), True)


def check_ranges(kv):
    """Two small reads of an object that is too large to be promoted."""
    size = SIZES[-1]
    want = body(f"s{size}", size)
    fd = os.open(f"{kv}/s{size}", os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    for off in (5 * MIB + 4096, size - 100):
        expect(f"at {off}", os.pread(fd, 4096, off), want[off:off + 4096])
    os.close(fd)


def check_change(kv, remote):
    """Rename, replace and unlink reach the remote."""
    directory = os.path.basename(kv)
    size = SIZES[4]
    old, new = (f"{remote}/{on_remote(f'{directory}/{n}')}" for n in (f"s{size}", "moved"))
    os.rename(f"{kv}/s{size}", f"{kv}/moved")
    copied(f"{kv}/moved")
    until("the old name leaves the remote", lambda: not os.path.exists(old))
    expect("its payload", content(new)[:size] == body(f"s{size}", size), True)
    put(f"{kv}/moved", b"replaced")
    copied(f"{kv}/moved")
    expect("the new payload", content(new)[:8], b"replaced")
    evicted(f"{kv}/moved")
    expect("from the remote", read(f"{kv}/moved"), b"replaced")
    os.unlink(f"{kv}/moved")
    until("it leaves the remote", lambda: not os.path.exists(new))
    expect("it is gone", read(f"{kv}/moved"), "ENOENT")


def check_outage(kv):
    """The server is down: what is here is read, what is put waits."""
    put(f"{kv}/during", body("during", MIB))
    expect("put meanwhile", read(f"{kv}/during") == body("during", MIB), True)
    expect("no copy", attribute(f"{kv}/during", "replicas"), "0")
    expect("put before", read(f"{kv}/here") == body("here", MIB), True)
    expect("unknown", read(f"{kv}/unknown"), "ENOENT")


def check_after_outage(kv):
    """The server is back: what waited is copied, what was evicted is read."""
    copied(f"{kv}/during")
    evicted(f"{kv}/during")
    expect("put during the outage", read(f"{kv}/during") == body("during", MIB), True)
    path = f"{kv}/s{SIZES[5]}"
    evicted(path)
    expect("put before it", read(path) == body(f"s{SIZES[5]}", SIZES[5]), True)


def check_flip(kv, remote):
    """Flips a byte in the middle of the payload of two objects on the remote; they are not in DRAM."""
    directory = os.path.basename(kv)
    for size in SIZES[5:]:
        evicted(f"{kv}/s{size}")
        with open(f"{remote}/{on_remote(f'{directory}/s{size}')}", "r+b") as f:
            f.seek(3 * MIB + 5)
            was = f.read(1)[0]
            f.seek(3 * MIB + 5)
            f.write(bytes([was ^ 255]))


def check_damaged(kv):
    """EIO for an object that is read whole; of a large one for the damaged block only."""
    expect("whole", read(f"{kv}/s{SIZES[5]}"), "EIO")
    size = SIZES[-1]
    want = body(f"s{size}", size)
    fd = os.open(f"{kv}/s{size}", os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    for block in range(13):
        try:
            got = os.pread(fd, 512, block * MIB) == want[block * MIB:block * MIB + 512]
        except OSError as e:
            got = errno.errorcode[e.errno]
        expect(f"block {block}", got, "EIO" if block == 3 else True)
    os.close(fd)


def check_other_copy(kv):
    """The same damage where NVMe has a copy, too: nobody notices."""
    for size in SIZES[5:]:
        expect(f"{size} bytes", read(f"{kv}/s{size}") == body(f"s{size}", size), True)


# Two nodes: a and b are their kv/ directories.

def check_found(a, b):
    """A key that one node put is found by the other one, with the same bytes, version and time."""
    for size in SIZES:
        put(f"{a}/f{size}", body(f"f{size}", size))
    for size in SIZES:
        copied(f"{a}/f{size}")
        until("found", lambda s=size: os.path.exists(f"{b}/f{s}"))
        expect(f"{size} bytes", read(f"{b}/f{size}") == body(f"f{size}", size), True)
        expect("version", attribute(f"{b}/f{size}", "version"), attribute(f"{a}/f{size}", "version"))
        expect("mtime", os.stat(f"{b}/f{size}").st_mtime_ns, os.stat(f"{a}/f{size}").st_mtime_ns)
        expect("inode", os.stat(f"{b}/f{size}").st_ino, os.stat(f"{a}/f{size}").st_ino)


def check_both(a, b):
    """Both put the same keys at the same time: one whole version is left, and both see that one."""
    names = [(f"both{i}", size) for i, size in enumerate((1000, 65536, 2 * MIB, 5 * MIB) * 3)]

    def work(kv, version):
        for name, size in names:
            put(f"{kv}/{name}", body(name, size + version, version))

    threads = [threading.Thread(target=work, args=x) for x in ((a, 1), (b, 2))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for name, size in names:
        may_be = [body(name, size + v, v) for v in (1, 2)]

        def agree(name=name, may_be=may_be):
            seen = read(f"{a}/{name}"), read(f"{b}/{name}")
            for got in seen:
                expect(f"{name}: whole", got in may_be, True)
            return seen[0] == seen[1]

        until(f"{name}: one version", agree)


def check_changes(a, b):
    """What a replaces or removes is so at b, too; whoever has the old one open reads it, or errors, but no mixture."""
    large, small = 12 * MIB, 3 * MIB
    for name, size in (("large", large), ("small", small), ("gone", 1000)):
        put(f"{a}/{name}", body(name, size))
        copied(f"{a}/{name}")
        until("found", lambda n=name: os.path.exists(f"{b}/{n}"))
        expect(name, read(f"{b}/{name}") == body(name, size), True)
    fds = [os.open(f"{b}/{name}", os.O_RDONLY) for name in ("large", "small")]
    for name, size in (("large", large), ("small", small + 1)):
        put(f"{a}/{name}", body(name, size, 2))
    os.unlink(f"{a}/gone")
    for fd, name, size in zip(fds, ("large", "small"), (large, small)):
        old = body(name, size)
        for round_ in range(3):
            for off in range(0, size, MIB):
                try:
                    got = os.pread(fd, MIB, off)
                except OSError as e:
                    expect(f"error of {name}", errno.errorcode[e.errno], "EIO")
                    continue
                expect(f"{name} at {off}, round {round_}", got == old[off:off + len(got)], True)
            if round_ == 0:
                copied(f"{a}/{name}")
    for name, size in (("large", large), ("small", small + 1)):
        until(f"{name}: the new version", lambda n=name, s=size: read(f"{b}/{n}") == body(n, s, 2))
    until("the removal", lambda: read(f"{b}/gone") == "ENOENT")
    expect("the open one keeps its size", os.fstat(fds[1]).st_size, small)
    for fd in fds:
        os.close(fd)


# Two sides of a partition; each has one of two remotes.

SIDE_KEYS = [(f"shared{i}", size) for i, size in enumerate((10, 1000, 65536, MIB, 3 * MIB, 12 * MIB) * 2)]


def check_side(kv, side):
    """What one side puts: keys that the other one puts, too, and keys of its own; each is acknowledged."""
    for name, size in SIDE_KEYS + [(f"only{side}-{size}", size) for size in (10, MIB, 12 * MIB)]:
        put(f"{kv}/{name}", body(name, size + int(side), int(side)))
        expect(name, read(f"{kv}/{name}") == body(name, size + int(side), int(side)), True)


def check_sides(a, b):
    """Afterwards: what one of them put is there; of what both put one whole version, the same for both."""
    for side in (1, 2):
        for size in (10, MIB, 12 * MIB):
            name = f"only{side}-{size}"
            for kv in (a, b):
                until(f"{kv}/{name}", lambda k=kv, n=name, z=size, s=side: read(f"{k}/{n}") == body(n, z + s, s))
    for name, size in SIDE_KEYS:
        may_be = [body(name, size + side, side) for side in (1, 2)]

        def agree(name=name, may_be=may_be):
            seen = read(f"{a}/{name}"), read(f"{b}/{name}")
            for got in seen:
                expect(f"{name}: whole", got in may_be or got == "EIO", True)
            return seen[0] == seen[1] and seen[0] in may_be

        until(f"{name}: one version", agree)


if __name__ == "__main__":
    checks.main(globals())
