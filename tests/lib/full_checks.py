"""Writers that go on after memory was full: full_checks.py CHECK KV-DIRECTORY [ARG...]."""
import mmap
import os
import signal
import sys

import checks
from checks import MIB, content, errno_of, expect, put, until

WRONLY, RDWR, CREAT, TRUNC = os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC


def mode(fd):
    return os.getxattr(f"/proc/self/fd/{fd}", "user.mooncake.io").decode()


def write(fd, size):
    """Like a client that looks at nothing; whether all was written."""
    try:
        return os.write(fd, bytes(size)) == size
    except OSError:
        return False


def fill(kv):
    """A put that takes all that is left; its descriptor."""
    fd = os.open(f"{kv}/hog", WRONLY | CREAT | TRUNC)
    while write(fd, MIB):
        pass
    while write(fd, 4096):
        pass
    return fd


def let_go(kv, fd):
    os.ftruncate(fd, 0)
    os.close(fd)
    os.unlink(f"{kv}/hog")


def refused(kv, name):
    """A put that was refused memory in its midst, and has it again; its descriptor."""
    fd = os.open(f"{kv}/{name}", RDWR | CREAT | TRUNC)
    expect("written at first", write(fd, 1000), True)
    hog = fill(kv)
    os.lseek(fd, 20 * MIB, os.SEEK_SET)
    expect("refused", write(fd, MIB), False)
    let_go(kv, hog)
    expect("written again", write(fd, 1000), True)
    return fd


def check_ignored(kv):
    """The close of a writer that ignores all errors says so, and nothing is there."""
    fd = refused(kv, "ignored")
    expect("a duplicate's close", errno_of(os.close, os.dup(fd)), "ENOSPC")
    expect("close", errno_of(os.close, fd), "ENOSPC")
    expect("there", os.path.exists(f"{kv}/ignored"), False)
    reason = os.getxattr(kv, "user.mooncake.error").decode()
    expect(f"the reason: {reason}", "writ" in reason and "--kv-dram" in reason, True)
    fd = refused(kv, "ignored")
    os.ftruncate(fd, 0)
    os.pwrite(fd, b"anew", 0)
    os.close(fd)
    expect("emptied and written anew", content(f"{kv}/ignored"), b"anew")


def check_replaced(kv):
    """The version before a put that was refused memory stays."""
    put(f"{kv}/replaced", b"before")
    expect("close", errno_of(os.close, refused(kv, "replaced")), "ENOSPC")
    expect("the version before", content(f"{kv}/replaced"), b"before")
    reason = os.getxattr(f"{kv}/replaced", "user.mooncake.error").decode()
    expect(f"the reason: {reason}", "writ" in reason, True)


def check_synced(kv):
    """fsync says so, too."""
    fd = refused(kv, "synced")
    expect("fsync", errno_of(os.fsync, fd), "ENOSPC")
    expect("close", errno_of(os.close, fd), "ENOSPC")
    expect("there", os.path.exists(f"{kv}/synced"), False)


def check_mapped(kv):
    """Stores through a mapping: its process gets SIGBUS past the daemon; who closes the file later is told."""
    fd = os.open(f"{kv}/mapped", RDWR | CREAT | TRUNC)
    os.ftruncate(fd, 90 * MIB)
    child = os.fork()
    if child == 0:
        with mmap.mmap(fd, 90 * MIB) as m:
            for at in range(0, 90 * MIB, 4096):
                m[at] = 1
            try:
                m.flush()
            except OSError:
                pass
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    expect("SIGBUS, or nothing", status in (0, signal.SIGBUS), True)
    os.ftruncate(fd, 1 * MIB)
    expect("an error at the close", errno_of(os.close, fd), "ENOSPC")
    expect("there", os.path.exists(f"{kv}/mapped"), False)


def check_freed_by_others(kv, way):
    """A put under way while another one found memory full: past the daemon nobody knows whether it was refused
    some; through it the daemon does."""
    fd = os.open(f"{kv}/beside", WRONLY | CREAT | TRUNC)
    expect("mode", mode(fd), "passthrough" if way == "past" else "cached")
    expect("written", write(fd, 1000), True)
    let_go(kv, fill(kv))
    expect("close", errno_of(os.close, fd), "ENOSPC" if way == "past" else "no error")
    expect("there", os.path.exists(f"{kv}/beside"), way == "through")


def check_killed(kv, worker):
    """The next worker knows, too."""
    fd = refused(kv, "killed")
    os.kill(int(worker), signal.SIGKILL)
    until("it is gone", lambda: not os.path.exists(f"/proc/{worker}"))
    expect("close", errno_of(os.close, fd), "ENOSPC")
    expect("there", os.path.exists(f"{kv}/killed"), False)
    put(f"{kv}/killed", b"later")
    expect("a later put", content(f"{kv}/killed"), b"later")


if __name__ == "__main__":
    sys.exit(checks.main(globals()))
