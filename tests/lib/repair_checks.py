"""Damage to copies of chunks on two directories, DIR/a and DIR/b, and what must become of it.

make DIR N            N small files, all different
flip DIR N            inverts a byte of N chunks, each on one of the two, and writes down which
named DIR             DIR/err names each of them with its remote, and nothing else
written DIR           exactly the damaged copies were written since
bad DIR               prints how many copies have wrong bytes or are missing
killed DIR COMMAND    runs it, kills it at its first line about a copy
count FILE KEY=N...   the last line of FILE, JSON, says so
"""

import hashlib
import json
import os
import random
import re
import subprocess
import sys

SIDES = ("a", "b")


def chunks(top, side):
    base = os.path.join(top, side, "chunks")
    return sorted(os.path.join(d, f) for d, _, files in os.walk(base) for f in files)


def inodes(top):
    return {p: os.stat(p).st_ino for s in SIDES for p in chunks(top, s)}


def make(top, n):
    for i in range(int(n)):
        with open(os.path.join(top, f"f{i:05}"), "wb") as f:
            f.write(os.urandom(100 + i))


def flip(top, n):
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed, file=sys.stderr)
    rng = random.Random(seed)
    names = sorted(os.path.relpath(p, os.path.join(top, "a")) for p in chunks(top, "a"))
    damaged = []
    for name in rng.sample(names, int(n)):
        path = os.path.join(top, rng.choice(SIDES), name)
        with open(path, "r+b") as f:
            at = rng.randrange(os.path.getsize(path))
            f.seek(at)
            byte = f.read(1)[0]
            f.seek(at)
            f.write(bytes([byte ^ 1 << rng.randrange(8)]))
        damaged.append(path)
    with open(os.path.join(top, "damaged"), "w", encoding="utf-8") as f:
        json.dump({"damaged": sorted(damaged), "inodes": inodes(top)}, f)


def noted(top):
    with open(os.path.join(top, "damaged"), encoding="utf-8") as f:
        return json.load(f)


def named(top):
    with open(os.path.join(top, "err"), encoding="utf-8") as f:
        found = re.findall(r": chunk ([0-9a-f]{64}): dir:(\S+): wrong bytes on the remote\n", f.read())
    said = sorted(os.path.join(where, "chunks", name[:2], name) for name, where in found)
    assert said == noted(top)["damaged"], (len(said), len(noted(top)["damaged"]))


def written(top):
    before, now = noted(top)["inodes"], inodes(top)
    changed = sorted(p for p in now if before.get(p) != now[p])
    assert changed == noted(top)["damaged"], (len(changed), len(noted(top)["damaged"]))


def bad(top):
    n = 0
    names = {os.path.relpath(p, os.path.join(top, "good")) for p in chunks(top, "good")}
    for side in SIDES:
        for name in names:
            path = os.path.join(top, side, name)
            if not os.path.exists(path):
                n += 1
                continue
            with open(path, "rb") as f:
                n += hashlib.sha256(f.read()).hexdigest() != os.path.basename(path)
    print(n)


def killed(_top, *command):
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as p:
        for line in p.stdout:
            if json.loads(line)["event"] == "repair":
                break
        else:
            sys.exit("it put nothing back")
        p.kill()


def count(path, *wanted):
    with open(path, encoding="utf-8") as f:
        line = json.loads(f.readlines()[-1])
    for word in wanted:
        key, value = word.split("=")
        if line[key] != int(value):
            sys.exit(f"{key}: {line[key]}, not {value}: {line}")


globals()[sys.argv[1]](*sys.argv[2:])
