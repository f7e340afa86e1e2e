"""What real clients of kv/ do, as they do it: kv_clients.py CLIENT KV-DIRECTORY."""
import hashlib
import multiprocessing
import os
import random
import threading
import uuid

import checks
from checks import MIB, expect


def body(key, size):
    return random.Random(key).randbytes(size)


def check_lmcache(kv):
    """The fs connector: <key, / → ->.data written as <stem>.tmp in the same directory, renamed."""
    top = f"{kv}/lmcache"
    os.makedirs(top, exist_ok=True)

    def put(key, data):
        path = f"{top}/{key.replace('/', '-')}.data"
        tmp = f"{path[:-5]}.tmp"
        with open(tmp, "wb") as f:
            f.write(data)
        os.replace(tmp, path)

    def get(key):
        path = f"{top}/{key.replace('/', '-')}.data"
        size = os.path.getsize(path)
        buf = bytearray(size)
        with open(path, "rb") as f:
            expect(f"readinto {key}", f.readinto(buf), size)
        return bytes(buf)

    def work(n):
        for i in range(20):
            key = f"vllm@meta/Llama-3.1-8B@1@0@{n:02x}{i:062x}"
            data = body(key, 3 * MIB + i)
            put(key, data)
            expect(f"{key}", get(key) == data, True)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    names = os.listdir(top)
    expect("objects", len(names), 60)
    expect("temporary files left", [n for n in names if n.endswith(".tmp")], [])


def sglang_put(top, key, data):
    path = f"{top}/{key}_model_0_1.bin"
    tmp = f"{path}.tmp.{os.getpid()}.{threading.get_native_id()}.{uuid.uuid4().hex}"
    with open(tmp, "wb") as f:
        f.write(data)
    os.rename(tmp, path)


def check_sglang(kv):
    """HiCache's file backend: whole-directory scans, mtime order, deletes by statvfs."""
    top = f"{kv}/sglang"
    os.makedirs(top, exist_ok=True)
    keys = [hashlib.sha256(b"%d" % i).hexdigest() for i in range(60)]
    for i, key in enumerate(keys):
        sglang_put(top, key, body(key, 100000 + i))
    with os.scandir(top) as it:
        entries = [(e.stat().st_mtime_ns, e.name) for e in it if e.is_file() and e.name.endswith(".bin")]
    expect("in order of mtime", [name[:64] for _, name in sorted(entries)], keys)
    buf = bytearray(100059)
    with open(f"{top}/{keys[59]}_model_0_1.bin", "rb", buffering=0) as f:
        expect("one read() is never short", f.readinto(buf), 100059)
    expect("bytes", bytes(buf) == body(keys[59], 100059), True)
    space = os.statvfs(top)
    expect("free space", 0 < space.f_bavail <= space.f_blocks, True)
    for _, name in sorted(entries)[:30]:
        os.remove(f"{top}/{name}")
    expect("left", len(os.listdir(top)), 30)


def reader(path, want, seed, result):
    fd = os.open(path, os.O_RDONLY)
    rng = random.Random(seed)
    for _ in range(200):
        off, n = rng.randrange(len(want)), rng.choice((4096, 65536, MIB))
        if os.pread(fd, n, off) != want[off:off + n]:
            result.put(f"wrong bytes at {off}")
            return
    result.put("")


def check_ranks(kv):
    """One process writes the whole object, several pread their parts of it."""
    path = f"{kv}/ranks"
    for turn in range(3):
        want = body(turn, 32 * MIB)
        with open(path, "wb") as f:
            f.write(want)
        result = multiprocessing.Queue()
        ranks = [multiprocessing.Process(target=reader, args=(path, want, i, result)) for i in range(4)]
        for p in ranks:
            p.start()
        expect(f"turn {turn}", [result.get(timeout=60) for _ in ranks], [""] * 4)
        for p in ranks:
            p.join()


checks.main(globals())
