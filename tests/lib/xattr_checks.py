"""Checks of user.mooncake.* in a mount: xattr_checks.py CHECK MOUNT [ARG...]."""
import os
import subprocess

import checks
from checks import MIB, attribute, content, errno_of, expect, put, until
from mount_checks import BIG
from tier_checks import MODEL

PREFIX = "user.mooncake."
FILE_NAMES = {"kind", "digest", "resident.dram", "resident.nvme", "resident.block", "io", "source", "state",
              "replicas", "hits", "pinned", "error"}
OBJECT_NAMES = (FILE_NAMES | {"version"}) - {"digest"}
SUM_NAMES = {"files", "bytes", "resident.dram", "resident.nvme", "resident.block", "hits", "pinned", "replicas", "state"}


def set_(path, name, value=b""):
    os.setxattr(path, PREFIX + name, value)


def listed(path):
    return {n.removeprefix(PREFIX) for n in os.listxattr(path)}


def check_names(mnt):
    os.mkdir(f"{mnt}/kv/d")
    put(f"{mnt}/kv/d/one", b"x" * 100000)
    os.stat(f"{mnt}/kv/d/one")
    expect("of a file", listed(f"{mnt}/{MODEL}/two.bin"), FILE_NAMES)
    expect("of a directory", listed(f"{mnt}/{MODEL}/deep"), SUM_NAMES | {"kind", "source"})
    expect("of a revision", listed(f"{mnt}/{MODEL}"), SUM_NAMES | {"kind", "source", "digest"})
    expect("of an object", listed(f"{mnt}/kv/d/one"), OBJECT_NAMES)
    expect("of a KV directory", listed(f"{mnt}/kv/d"), SUM_NAMES | {"kind", "error"})
    content(f"{mnt}/{MODEL}/two.bin")
    for below in (f"{MODEL}/two.bin", f"{MODEL}", "kv/d/one", "kv/d"):
        for name in listed(f"{mnt}/tiers/dram/{below}") - {"hits", "resident.nvme", "state"}:  # they move on
            expect(f"{name} of {below} in a tier", attribute(f"{mnt}/tiers/dram/{below}", name),
                   attribute(f"{mnt}/{below}", name))
    for path in (f"{mnt}/{MODEL}/two.bin", f"{mnt}/kv/d/one", f"{mnt}/kv/d", f"{mnt}/{MODEL}", f"{mnt}/.mooncake/status"):
        for name in ("security.selinux", "security.capability", "security.ima", "system.posix_acl_access",
                     "system.posix_acl_default", "user.other", "user.mooncake.nope"):
            expect(f"{name} of {path}", errno_of(os.getxattr, path, name) in ("ENODATA", "ENOTSUP"), True)


def check_sums(mnt):
    """A directory's attributes are those of the files below it, together."""
    top = f"{mnt}/{MODEL}"
    content(f"{top}/two.bin")
    sizes, dram = [], 0
    for folder, _, names in os.walk(top):
        for name in names:
            path = f"{folder}/{name}"
            if not os.path.islink(path):
                sizes.append(os.stat(path).st_size)
                dram += int(attribute(path, "resident.dram"))
    expect("files", attribute(top, "files"), str(len(sizes)))
    expect("bytes", attribute(top, "bytes"), str(sum(sizes)))
    expect("resident", attribute(top, "resident.dram"), str(dram))
    expect("something is resident", dram >= 2 * MIB, True)
    expect("replicas, state", (attribute(top, "replicas"), attribute(top, "state")), ("1", "clean"))
    os.makedirs(f"{mnt}/kv/sum/deep")
    for i in range(10):
        put(f"{mnt}/kv/sum/{'deep/' * (i % 2)}{i}", b"x" * 1000 * i)
        os.stat(f"{mnt}/kv/sum/{'deep/' * (i % 2)}{i}")
    expect("objects", (attribute(f"{mnt}/kv/sum", "files"), attribute(f"{mnt}/kv/sum", "bytes")), ("10", "45000"))
    expect("resident objects", attribute(f"{mnt}/kv/sum", "resident.dram"), "45000")
    until("all clean", lambda: attribute(f"{mnt}/kv/sum", "state") == "clean")
    until("all on NVMe", lambda: attribute(f"{mnt}/kv/sum", "resident.nvme") == "45000")


def check_evict_warm(mnt):
    for top, file, size in ((f"{mnt}/{MODEL}", "two.bin", 2 * MIB), (f"{mnt}/kv/d", "one", 100000)):
        path = f"{top}/{file}"
        content(path)
        set_(path, "evict")
        expect("evicted", attribute(path, "resident.dram"), "0")
        set_(path, "warm")
        until(f"{path} warm", lambda p=path, s=size: attribute(p, "resident.dram") == str(s))
        set_(top, "evict", b"dram")
        expect("all below", attribute(top, "resident.dram"), "0")
        set_(top, "warm", b"dram")
        until("all below", lambda t=top: attribute(t, "resident.dram") == attribute(t, "bytes") or
                   int(attribute(t, "resident.dram")) >= BIG)
    path = f"{mnt}/{MODEL}/two.bin"
    set_(path, "warm", b"nvme")
    until("on NVMe", lambda: attribute(path, "resident.nvme") == str(2 * MIB))
    set_(path, "evict", b"nvme")
    expect("off NVMe", attribute(path, "resident.nvme"), "0")
    set_(path, "warm", b"nvme")
    until("on NVMe again", lambda: attribute(path, "resident.nvme") == str(2 * MIB))


def check_pin(mnt):
    for path in (f"{mnt}/{MODEL}/two.bin", f"{mnt}/kv/d/one"):
        for name, value, want in (("pin", b"", "1"), ("pinned", b"0", "0"), ("pin", b"1", "1"), ("pin", b"0", "0"),
                                  ("pinned", b"1", "1")):
            set_(path, name, value)
            expect(f"{name} {value}", attribute(path, "pinned"), want)
        for tier in ("dram", "nvme"):
            content(path)
            until("there", lambda p=path, t=tier: attribute(p, f"resident.{t}") != "0")
            expect("evict", errno_of(set_, path, "evict", tier.encode()), "EBUSY")
            expect("why", attribute(path, "error"), f"not evicted from {tier}: it is pinned")
    expect("counted", attribute(f"{mnt}/{MODEL}", "pinned"), "1")
    expect("a directory with a pinned file", errno_of(set_, f"{mnt}/{MODEL}", "evict"), "EBUSY")
    expect("too much", errno_of(set_, f"{mnt}/{MODEL}/huge", "pin"), "ENOSPC")
    expect("why", "half of the largest tier" in attribute(f"{mnt}/{MODEL}/huge", "error"), True)


def check_pinned(mnt):
    """After a restart."""
    for path in (f"{mnt}/{MODEL}/two.bin", f"{mnt}/kv/d/one"):
        until("pinned", lambda p=path: os.path.exists(p) and attribute(p, "pinned") == "1")
        set_(path, "pin", b"0")
        expect("not any more", attribute(path, "pinned"), "0")


def check_refused(mnt):
    file, kv = f"{mnt}/{MODEL}/two.bin", f"{mnt}/kv/d/one"
    for path in (file, kv, f"{mnt}/kv/d", f"{mnt}/{MODEL}"):
        for name, value in (("kind", b"x"), ("pin", b"2"), ("evict", b"cloud"), ("warm", b"remote"), ("nope", b"")):
            expect(f"{name} of {path}", errno_of(set_, path, name, value), "ENOTSUP")
        expect("others", errno_of(os.setxattr, path, "user.x", b"x"), "ENOTSUP" if "/kv/" in path else "EROFS")
    expect("elsewhere", errno_of(set_, f"{mnt}/checkpoints", "evict"), "ENOTSUP")
    expect("the last good copy", errno_of(set_, file, "evict", b"remote"), "EBUSY")


def check_hidden(mnt):
    for path in (f"{mnt}/{MODEL}/two.bin", f"{mnt}/{MODEL}", f"{mnt}/kv", f"{mnt}/kv/d/one"):
        expect("listed", os.listxattr(path), [])
        expect("by name", attribute(path, "kind") != "", True)
    copy = f"{mnt}/../copy"
    subprocess.run(["cp", "-a", f"{mnt}/{MODEL}/two.bin", copy], check=True)
    expect("of a copy", [n for n in os.listxattr(copy) if n.startswith(PREFIX)], [])
    r = subprocess.run(["getfattr", "-d", "-m", "-", f"{mnt}/{MODEL}/two.bin"], capture_output=True, text=True, check=False)
    expect("getfattr", r.stdout, "")


if __name__ == "__main__":
    checks.main(globals())
