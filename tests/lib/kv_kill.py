"""Clients of kv/ whose daemon is killed in the middle of their work: kv_kill.py COMMAND …, see it-kv-kill.sh.

  work KV STATE PID MILLISECONDS SEED ACK [SOURCE MOUNTED]   clients work, the daemon is killed after a while
  check KV STATE memory|disk                                 what is there now is what they had been told

STATE is a directory: what each client's keys may hold, from one command to the next. ACK is that of the mount.
Each client has keys of its own, so that what it was told decides about them. Content is named by a number, 0 is
absent. "memory": the DRAM tier outlived the daemon, and with it all that was published; "disk": it did not.
"""
import errno
import json
import os
import random
import signal
import sys
import threading
import time
from multiprocessing import Process

from checks import expect


CLIENTS, KEYS = 4, 5


def size_of(number):
    rng = random.Random(number)
    return 16 + rng.randrange(rng.choice((1, 5000, 5000, 70000, 70000, 3000000)))


def bytes_of(number):
    return random.Random(number).randbytes(size_of(number))


class Client:
    """What it knows of a key: the number that all can see, and those that may be there without DRAM ("maybe").

    under_way: the operation that was not answered, as (what it is, key, other key or None, number).
    """

    def __init__(self, kv, state, number, ack):
        self.dir, self.file, self.number, self.ack = f"{kv}/c{number}", f"{state}/{number}", number, ack
        self.under_way, self.count = None, 0
        self.keys = {f"k{i}": self.sure(0) for i in range(KEYS)}
        if os.path.exists(self.file):
            with open(self.file) as f:
                saved = json.load(f)
            self.keys, self.count = saved["keys"], saved["count"]
        os.makedirs(self.dir, exist_ok=True)

    @staticmethod
    def sure(number):
        return [number, [number]]

    def more(self, key, number):
        """Visible, and perhaps durable."""
        return [number, sorted({number, *self.keys[key][1]})]

    def save(self):
        with open(self.file, "w") as f:
            json.dump({"keys": self.keys, "count": self.count, "under_way": self.under_way}, f)

    # ---- the operations; what raises was not answered

    def write(self, key, number, sync):
        with open(f"{self.dir}/{key}", "wb", buffering=0) as f:
            data = memoryview(bytes_of(number))
            while data:
                data = data[f.write(data):]
            if sync:
                os.fsync(f.fileno())

    def put(self, key, number, sync):
        self.under_way = ("put", key, None, number)
        self.write(key, number, sync)
        # close() has returned, but it is done when the next who asks has been answered.
        expect(f"size of {key}", os.stat(f"{self.dir}/{key}").st_size, size_of(number))
        self.keys[key] = self.sure(number) if sync or self.ack != "dram" else self.more(key, number)

    def sync(self, key):
        fd = os.open(f"{self.dir}/{key}", os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        self.keys[key] = self.sure(self.keys[key][0])

    def after_rename(self, key, to):
        number = self.keys[key][0]
        return self.sure(number) if self.keys[key] == self.sure(number) else self.more(to, number)

    def rename(self, key, to):
        self.under_way = ("rename", key, to, self.keys[key][0])
        os.rename(f"{self.dir}/{key}", f"{self.dir}/{to}")
        self.keys[to] = self.after_rename(key, to)
        self.keys[key] = self.sure(0)

    def unlink(self, key):
        self.under_way = ("unlink", key, None, 0)
        os.unlink(f"{self.dir}/{key}")
        self.keys[key] = self.sure(0)

    def read(self, key):
        with open(f"{self.dir}/{key}", "rb") as f:
            expect(f"{self.dir}/{key}", f.read() == bytes_of(self.keys[key][0]), True)

    def step(self, rng):
        key, other = rng.sample(sorted(self.keys), 2)
        self.count += 1
        number = (self.count * CLIENTS + self.number) * 8 + 1
        what = rng.randrange(10)
        if self.keys[key][0] == 0 or what < 3:
            self.put(key, number, rng.randrange(2) == 0)
        elif what < 5:  # as publishers do
            self.put(other, number, True)
            self.under_way = None
            self.rename(other, key)
        elif what < 6:
            self.rename(key, other)
        elif what < 7:
            self.sync(key)
        elif what < 8:
            self.unlink(key)
        else:
            self.read(key)
        self.under_way = None

    def run(self, seed):
        rng = random.Random(seed * CLIENTS + self.number)
        try:
            while True:
                self.step(rng)
        except OSError as e:
            if e.errno not in (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO):
                raise
        self.save()

    # ---- after a restart

    def found(self, key):
        try:
            with open(f"{self.dir}/{key}", "rb") as f:
                data = f.read()
        except FileNotFoundError:
            return 0
        numbers = {self.keys[key][0], *self.keys[key][1]} | ({self.under_way[3]} if self.under_way else set())
        for n in numbers - {0}:
            if size_of(n) == len(data) and bytes_of(n) == data:
                return n
        raise SystemExit(f"{self.dir}/{key}: {len(data)} bytes that are not those of {sorted(numbers)}; {self.under_way}")

    @staticmethod
    def may_be(held, number, memory):
        return number == held[0] or (not memory and number in held[1])

    def explained(self, key, other, found, memory):
        """Whether the operation under way explains what its keys hold: as before it, or as after."""
        what, number, a = self.under_way[0], self.under_way[3], found[key]
        if what in ("put", "unlink"):
            return a == number or self.may_be(self.keys[key], a, memory)
        b = found[other]
        before = self.may_be(self.keys[key], a, memory) and self.may_be(self.keys[other], b, memory)
        after = a == 0 and self.may_be(self.after_rename(key, other), b, memory)
        return (before and (a != b or a == 0)) or after

    def check(self, memory):
        with open(self.file) as f:
            self.under_way = json.load(f)["under_way"]
        found = {key: self.found(key) for key in self.keys}
        concerned = set() if self.under_way is None else {k for k in self.under_way[1:3] if k is not None}
        text = f"client {self.number}: found {found}, known {self.keys}, under way {self.under_way}"
        if concerned and not self.explained(*self.under_way[1:3], found, memory):
            raise SystemExit(text)
        for key in self.keys.keys() - concerned:
            if not self.may_be(self.keys[key], found[key], memory):
                raise SystemExit(f"{key}; {text}")
        expect("listing", sorted(os.listdir(self.dir)), sorted(k for k in found if found[k] != 0))
        for key, number in found.items():
            self.keys[key] = self.sure(number)  # the mount that checks ends in order
        self.under_way = None
        self.save()


def read_weights(source, mounted, seed):
    """Reads ranges of checkpoint files until the daemon is gone: right bytes or an error."""
    rng = random.Random(seed)
    want = {}
    for name in os.listdir(source):
        with open(f"{source}/{name}", "rb") as f:
            want[name] = f.read()
    while True:
        name = rng.choice(sorted(want))
        off = rng.randrange(len(want[name]))
        try:
            with open(f"{mounted}/{name}", "rb", buffering=0) as f:
                got = os.pread(f.fileno(), 500000, off)
        except OSError:
            return
        expect(f"{name} at {off}", got == want[name][off:off + 500000][:len(got)], True)


def work(kv, state, pid, milliseconds, seed, ack, *weights):
    clients = [Client(kv, state, i, ack) for i in range(CLIENTS)]
    workers = [Process(target=c.run, args=(int(seed),)) for c in clients]
    if weights:
        workers.append(Process(target=read_weights, args=(*weights, int(seed))))
    for w in workers:
        w.start()
    threading.Event().wait(int(milliseconds) / 1000)
    os.kill(int(pid), signal.SIGKILL)
    end = time.monotonic() + 60
    for w in workers:
        w.join(max(0.1, end - time.monotonic()))
        expect("a client's end", w.exitcode, 0)


def check(kv, state, where):
    for i in range(CLIENTS):
        Client(kv, state, i, "").check(where == "memory")


{"work": work, "check": check}[sys.argv[1]](*sys.argv[2:])
