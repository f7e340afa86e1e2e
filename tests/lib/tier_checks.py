"""Checks of tiers/ in a mount: tier_checks.py CHECK MOUNT [ARG...]."""
import mmap
import os
import stat
import subprocess

import checks
from checks import MIB, attribute, content, errno_of, expect, put, until
from mount_checks import BIG

MODEL = "checkpoints/acme/model@r1"


def files(top):
    """{path below top: st_blocks * 512} of all files there."""
    found = {}
    for folder, _, names in os.walk(top):
        for name in names:
            path = f"{folder}/{name}"
            found[os.path.relpath(path, top)] = os.lstat(path).st_blocks * 512
    return found


def blocks(size):
    return (size + 511) // 512 * 512


def du(path):
    return int(subprocess.run(["du", "-s", "-B1", path], check=True, capture_output=True, text=True).stdout.split()[0])


def rm(*args):
    return subprocess.run(["rm", *args], stdin=subprocess.DEVNULL, capture_output=True, text=True)


def fill(mnt):
    """Loads two files of a checkpoint and puts some objects; all of it in DRAM and on NVMe."""
    os.makedirs(f"{mnt}/kv/a/b")
    put(f"{mnt}/kv/a/b/large", b"x" * 100000)
    put(f"{mnt}/kv/a/empty", b"")
    put(f"{mnt}/kv/small", b"x")
    for name in ("big.bin", "two.bin"):
        content(f"{mnt}/{MODEL}/{name}")
    for name, size in (("big.bin", BIG), ("two.bin", 2 * MIB)):
        until(f"{name} on NVMe", lambda n=name, s=size:
                   attribute(f"{mnt}/{MODEL}/{n}", "resident.nvme") == str(s))
    for name in ("a/b/large", "a/empty", "small"):
        until(f"{name} clean", lambda n=name: attribute(f"{mnt}/kv/{n}", "state") == "clean")


def check_tree(mnt):
    fill(mnt)
    tiers = f"{mnt}/tiers"
    expect("tiers", sorted(os.listdir(tiers)), ["dram", "nvme", "remote"])
    expect("no device", errno_of(os.lstat, f"{tiers}/block"), "ENOENT")
    want = {"big.bin": blocks(BIG), "two.bin": blocks(2 * MIB)}
    objects = {"a/b/large": blocks(100000), "a/empty": 0, "small": 512}
    for tier in ("dram", "nvme"):
        expect(tier, sorted(os.listdir(f"{tiers}/{tier}")), ["checkpoints", "kv"])
        expect("organisations", os.listdir(f"{tiers}/{tier}/checkpoints"), ["acme"])
        expect("revisions", sorted(os.listdir(f"{tiers}/{tier}/checkpoints/acme")), ["model@r1", "model@r2"])
        expect(f"checkpoint in {tier}", files(f"{tiers}/{tier}/{MODEL}"), want)
        expect(f"objects in {tier}", files(f"{tiers}/{tier}/kv"), objects)
        expect("du of a revision", du(f"{tiers}/{tier}/{MODEL}"), sum(want.values()))
        expect("du counts shared bytes once", du(f"{tiers}/{tier}/checkpoints"), sum(want.values()))
        expect("du of objects", du(f"{tiers}/{tier}/kv"), sum(objects.values()))
    whole = files(f"{tiers}/remote/{MODEL}")
    expect("the remote has all files", len(whole),
           sum(len(n) for _, _, n in os.walk(f"{mnt}/{MODEL}")) - 1)  # but for the link
    expect("without holes", whole["holes"], os.stat(f"{mnt}/{MODEL}/holes").st_blocks * 512)
    expect("no object on the remote", files(f"{tiers}/remote/kv"), {})
    expect("kv without objects", os.listdir(f"{tiers}/remote/kv"), [])
    for tier in ("dram", "nvme", "remote"):
        expect("missing", errno_of(os.lstat, f"{tiers}/{tier}/{MODEL}/nope"), "ENOENT")
    expect("not resident", errno_of(os.lstat, f"{tiers}/dram/{MODEL}/config.json"), "ENOENT")


def check_access(mnt):
    file, kv = f"{mnt}/tiers/dram/{MODEL}/two.bin", f"{mnt}/tiers/dram/kv"
    for path in (file, f"{kv}/small"):
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
            expect(f"open {path}", errno_of(os.open, path, flags), "EACCES")
        s = os.stat(path)
        expect("type and mode", (stat.S_ISREG(s.st_mode), s.st_mode & 0o7777), (True, 0o200))
    expect("size", os.stat(file).st_size, 2 * MIB)
    expect("mtime", os.stat(file).st_mtime_ns, os.stat(f"{mnt}/{MODEL}/two.bin").st_mtime_ns)
    expect("create", errno_of(os.open, f"{kv}/new", os.O_CREAT | os.O_WRONLY), "EROFS")
    expect("mkdir", errno_of(os.mkdir, f"{kv}/new"), "EROFS")
    expect("rename", errno_of(os.rename, f"{kv}/small", f"{kv}/other"), "EROFS")
    expect("rmdir of a file", errno_of(os.rmdir, file), "ENOTDIR")
    expect("rmdir of what holds something", errno_of(os.rmdir, f"{kv}/a"), "ENOTEMPTY")
    expect("rmdir of a tier", errno_of(os.rmdir, f"{mnt}/tiers/dram"), "EBUSY")


def check_evict(mnt):
    """One tier loses the file, the other keeps it, readers get the right bytes."""
    want = content(f"{mnt}/{MODEL}/two.bin")
    for tier, other in (("dram", "nvme"), ("nvme", "dram")):
        content(f"{mnt}/{MODEL}/two.bin")
        content(f"{mnt}/kv/a/b/large")
        os.unlink(f"{mnt}/tiers/{tier}/{MODEL}/two.bin")
        expect("gone", errno_of(os.lstat, f"{mnt}/tiers/{tier}/{MODEL}/two.bin"), "ENOENT")
        expect("not listed", "two.bin" in os.listdir(f"{mnt}/tiers/{tier}/{MODEL}"), False)
        expect("resident", attribute(f"{mnt}/{MODEL}/two.bin", f"resident.{tier}"), "0")
        expect("read", content(f"{mnt}/{MODEL}/two.bin") == want, True)
        if tier == "dram":
            expect("the other keeps it", attribute(f"{mnt}/{MODEL}/two.bin", f"resident.{other}"), str(2 * MIB))
    os.unlink(f"{mnt}/tiers/dram/kv/a/b/large")
    expect("object in DRAM", errno_of(os.lstat, f"{mnt}/tiers/dram/kv/a/b/large"), "ENOENT")
    os.lstat(f"{mnt}/tiers/nvme/kv/a/b/large")
    expect("object read", content(f"{mnt}/kv/a/b/large"), b"x" * 100000)
    os.unlink(f"{mnt}/tiers/nvme/kv/a/b/large")
    expect("object on NVMe", errno_of(os.lstat, f"{mnt}/tiers/nvme/kv/a/b/large"), "ENOENT")
    os.lstat(f"{mnt}/tiers/remote/kv/a/b/large")
    expect("object read", content(f"{mnt}/kv/a/b/large"), b"x" * 100000)
    expect("the last copy", errno_of(os.unlink, f"{mnt}/tiers/remote/kv/a/b/large"), "EBUSY")
    expect("why", attribute(f"{mnt}/kv/a/b/large", "error"), "not evicted from remote: it is the last good copy")


def check_busy(mnt):
    """What cannot leave stays, and says why."""
    big = f"{mnt}/{MODEL}/big.bin"
    content(big)
    expect("the remote", errno_of(os.unlink, f"{mnt}/tiers/remote/{MODEL}/big.bin"), "EBUSY")
    expect("why", "last good copy" in attribute(big, "error"), True)
    os.setxattr(big, "user.mooncake.pin", b"1")
    for tier in ("dram", "nvme"):
        path = f"{mnt}/tiers/{tier}/{MODEL}/big.bin"
        expect("pinned", errno_of(os.unlink, path), "EBUSY")
        expect("why", attribute(path, "error"), f"not evicted from {tier}: it is pinned")
        expect("rm", (rm("-r", f"{mnt}/tiers/{tier}/{MODEL}").returncode, os.path.exists(path)), (1, True))
    os.setxattr(big, "user.mooncake.pin", b"0")
    content(big)
    fd = os.open(big, os.O_RDONLY)
    mode = attribute(big, "io")
    mapped = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)
    os.close(fd)
    if mode == "passthrough":  # the kernel reads the image past us
        held = {}
        for tier in ("dram", "nvme"):
            if errno_of(os.unlink, f"{mnt}/tiers/{tier}/{MODEL}/big.bin") == "EBUSY":
                held[tier] = attribute(big, "error")
        expect("one tier is mapped", len(held), 1)
        for tier, why in held.items():
            expect(f"why: {why}", why.startswith(f"not evicted from {tier}: a client has it open"), True)
    expect("mapped bytes", mapped[:] == content(big), True)
    mapped.close()
    content(big)
    until("let go", lambda: rm("-f", f"{mnt}/tiers/dram/{MODEL}/big.bin").returncode == 0)


def check_rm_r(mnt):
    """rm -r empties a tier, says nothing, and leaves the others alone."""
    for name in ("big.bin", "two.bin"):
        content(f"{mnt}/{MODEL}/{name}")
    content(f"{mnt}/kv/small")
    before = files(f"{mnt}/tiers/nvme/kv")
    for part in ("kv/a", "kv", "checkpoints"):
        r = rm("-r", f"{mnt}/tiers/dram/{part}")
        expect(f"rm -r {part}", (r.returncode, r.stderr), (0, ""))
        expect("left", files(f"{mnt}/tiers/dram/{part}"), {})
    expect("parts stay", sorted(os.listdir(f"{mnt}/tiers/dram")), ["checkpoints", "kv"])
    expect("no directory is left", os.listdir(f"{mnt}/tiers/dram/kv") + os.listdir(f"{mnt}/tiers/dram/checkpoints"), [])
    expect("NVMe", files(f"{mnt}/tiers/nvme/kv"), before)
    expect("bytes", content(f"{mnt}/kv/small"), b"x")
    os.lstat(f"{mnt}/tiers/dram/kv/small")
    expect("evicted by hand only", sorted(os.listdir(f"{mnt}/kv")), ["a", "small"])


def check_many(mnt, count):
    """A large directory: complete lists, true sums, rm -r, and a walk that leaves nothing to be told twice."""
    count = int(count)
    os.mkdir(f"{mnt}/kv/many")
    for i in range(count):
        put(f"{mnt}/kv/many/{i:06d}", b"x" * (i % 2000))
    want = {f"{i:06d}": blocks(i % 2000) for i in range(count)}
    last = f"{mnt}/kv/many/{count - 1:06d}"
    until("clean", lambda: attribute(last, "state") == "clean")
    until("all on NVMe", lambda: len(os.listdir(f"{mnt}/tiers/nvme/kv/many")) == count)
    for _ in range(2):
        expect("names", sorted(os.listdir(f"{mnt}/tiers/dram/kv/many")), sorted(want))
        expect("du", du(f"{mnt}/tiers/dram/kv/many"), sum(want.values()))
    expect("sizes", files(f"{mnt}/tiers/nvme/kv/many"), want)
    r = rm("-r", f"{mnt}/tiers/dram/kv/many")
    expect("rm -r", (r.returncode, r.stderr), (0, ""))
    expect("gone", os.path.exists(f"{mnt}/tiers/dram/kv/many"), False)
    expect("kept", len(os.listdir(f"{mnt}/kv/many")), count)
    expect("bytes", content(last), b"x" * ((count - 1) % 2000))
    expect("back", files(f"{mnt}/tiers/dram/kv/many"), {os.path.basename(last): want[os.path.basename(last)]})


if __name__ == "__main__":
    checks.main(globals())
