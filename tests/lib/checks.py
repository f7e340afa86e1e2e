"""What the checks of a mount share: expectations, waiting, whole files, attributes."""
import errno
import os
import sys
import time

MIB = 1 << 20


def expect(what, got, want):
    if got != want:
        got, want = (repr(x)[:200] for x in (got, want))
        raise SystemExit(f"{what}: got {got}, expected {want}")


def errno_of(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except OSError as e:
        return errno.errorcode[e.errno]
    return "no error"


def until(what, condition, seconds=90):
    """Waits for what happens by itself; the limit is for what never does."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"{what}: not within {seconds} s")
        time.sleep(0.005)


def content(path):
    with open(path, "rb") as f:
        return f.read()


def put(path, data):
    with open(path, "wb") as f:
        f.write(data)


def attribute(path, name):
    return os.getxattr(path, f"user.mooncake.{name}").decode()


def main(scope):
    """Runs check_<first argument> of scope with the other arguments."""
    scope["check_" + sys.argv[1]](*sys.argv[2:])
