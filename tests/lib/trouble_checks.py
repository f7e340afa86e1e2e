"""Checks of a mounted revision in trouble: trouble_checks.py CHECK SOURCE MOUNTED [ARG...]; see mount.sh."""
import errno
import os
import random
import signal
import sys
import threading
import time

from checks import MIB, content, expect, until
from mount_checks import drop_pages

LIMIT_S = 90  # a read that lasts longer hangs


def read_all(path):
    """The bytes of the file, or the name of the error."""
    try:
        return content(path)
    except OSError as e:
        return errno.errorcode[e.errno]


def is_right(got, want, off, length):
    """A read is right when it is a prefix: the kernel ends a read early when a later page has an error."""
    return len(got) > 0 and got == want[off:off + length][:len(got)]


def check_right(source, mounted, *names):
    """All bytes of the named files are right."""
    for name in names:
        drop_pages(f"{mounted}/{name}")
        expect(name, read_all(f"{mounted}/{name}") == content(f"{source}/{name}"), True)


def check_eio(source, mounted, name, first, count):
    """Reads that touch blocks [first, first + count) end with EIO, all others give the right bytes."""
    want = content(f"{source}/{name}")
    bad = range(int(first), int(first) + int(count))
    drop_pages(f"{mounted}/{name}")
    fd = os.open(f"{mounted}/{name}", os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    for block in range((len(want) + MIB - 1) // MIB):
        off = block * MIB
        try:
            got = os.pread(fd, 4096, off) == want[off:off + 4096]
        except OSError as e:
            got = errno.errorcode[e.errno]
        expect(f"block {block}", got, "EIO" if block in bad else True)
    os.close(fd)


def check_interrupted(source, mounted, started, seconds, *names):
    """Eight readers for a while: each read gives right bytes or EIO, and none hangs.

    The file started appears once reads have gone well; the seconds are counted from then.
    """
    seed = int(time.time())
    print("seed", seed)
    want = {name: content(f"{source}/{name}") for name in names}
    end = [time.monotonic() + LIMIT_S]
    good, failed, longest, wrong = [0] * 8, [0] * 8, [0.0] * 8, []

    def reader(i):
        rng = random.Random(seed + i)
        while time.monotonic() < end[0]:
            name = rng.choice(names)
            off = rng.randrange(len(want[name]))
            begin = time.monotonic()
            try:
                fd = os.open(f"{mounted}/{name}", os.O_RDONLY)
                try:
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                    if not is_right(os.pread(fd, 300000, off), want[name], off, 300000):
                        wrong.append((name, off))
                finally:
                    os.close(fd)
                good[i] += 1
            except OSError as e:
                if e.errno != errno.EIO:
                    wrong.append((name, off, errno.errorcode[e.errno]))
                failed[i] += 1
            longest[i] = max(longest[i], time.monotonic() - begin)

    threads = [threading.Thread(target=reader, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    while sum(good) < 8 and time.monotonic() < end[0]:
        time.sleep(0.001)
    end[0] = time.monotonic() + float(seconds)
    with open(started, "w"):
        pass
    for t in threads:
        t.join()
    print(f"{sum(good)} good reads, {sum(failed)} EIO, longest {max(longest):.1f} s")
    expect("wrong", wrong[:5], [])
    if max(longest) > LIMIT_S:
        raise SystemExit(f"a read took {max(longest):.1f} s")
    expect("some reads were good", sum(good) >= 8, True)


def check_recovers(source, mounted, *names):
    """By and by everything reads right again, and until then nothing wrong."""
    begin = time.monotonic()
    for name in names:
        want = content(f"{source}/{name}")
        while True:
            got = read_all(f"{mounted}/{name}")
            if got == want:
                break
            if not isinstance(got, str):
                raise SystemExit(f"{name}: wrong bytes")
            if time.monotonic() - begin > LIMIT_S:
                raise SystemExit(f"{name}: still {got}")
            drop_pages(f"{mounted}/{name}")
    print(f"all right after {time.monotonic() - begin:.1f} s")


def resident(mounted, name, tier):
    return int(os.getxattr(f"{mounted}/{name}", f"user.mooncake.resident.{tier}"))


def check_wait_resident(source, mounted, tier, bytes_at_least, *names):
    """Waits until the tier holds so much of the files together, as a writer behind needs a moment."""
    until(f"{bytes_at_least} bytes in {tier}",
          lambda: sum(resident(mounted, n, tier) for n in names) >= int(bytes_at_least))


def check_serve_and_die(source, mounted, pid, first, milliseconds, *names):
    """Readers under way when the daemon is killed: what they got was right. Prints what NVMe had before.

    The milliseconds are counted from when NVMe holds so many bytes first.
    """
    seed = int(time.time())
    print("seed", seed)
    want = {name: content(f"{source}/{name}") for name in names}
    wrong, stop = [], threading.Event()

    def reader(i):
        rng = random.Random(seed + i)
        while not stop.is_set():
            name = rng.choice(names)
            off = rng.randrange(len(want[name]))
            try:
                fd = os.open(f"{mounted}/{name}", os.O_RDONLY)
                try:
                    if not is_right(os.pread(fd, 2 * MIB, off), want[name], off, 2 * MIB):
                        wrong.append((name, off))
                finally:
                    os.close(fd)
            except OSError:
                return

    threads = [threading.Thread(target=reader, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    held, end, limit = 0, None, time.monotonic() + LIMIT_S
    while end is None or time.monotonic() < end:
        held = sum(resident(mounted, n, "nvme") for n in names)
        if end is None and held >= int(first):
            end = time.monotonic() + int(milliseconds) / 1000
        if time.monotonic() > limit:
            raise SystemExit(f"NVMe holds only {held}")
    os.kill(int(pid), signal.SIGKILL)
    stop.set()
    for t in threads:
        t.join(LIMIT_S)
        expect("a reader hangs", t.is_alive(), False)
    expect("wrong", wrong, [])
    print(f"held {held}")


def check_committed(source, mounted, at_least, *names):
    """What NVMe says it holds reads right while the remote gives nothing; the rest is EIO."""
    held = sum(resident(mounted, n, "nvme") for n in names)
    print(f"held after the restart: {held}, before: {at_least}")
    if held < int(at_least):
        raise SystemExit("the restart lost committed blocks")
    served = 0
    for name in names:
        want = content(f"{source}/{name}")
        have = resident(mounted, name, "nvme")
        got = 0
        fd = os.open(f"{mounted}/{name}", os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        for off in range(0, len(want), MIB):
            try:
                data = os.pread(fd, MIB, off)
            except OSError as e:
                expect(f"{name} at {off}", errno.errorcode[e.errno], "EIO")
                continue
            expect(f"{name} at {off}", data == want[off:off + MIB], True)
            got += len(data)
        os.close(fd)
        if got < have:
            raise SystemExit(f"{name}: {have} bytes resident, {got} served without the remote")
        served += got
    print(f"served without the remote: {served}")


if __name__ == "__main__":
    globals()["check_" + sys.argv[1].replace("-", "_")](*sys.argv[2:])
