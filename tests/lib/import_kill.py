"""Kills an import 20 times at random points, each time resumes, and checks what the next run sees.

Usage: import_kill.py PROGRAM DIR [SEED]. Of every killed run it knows, from /proc, how much it had read;
what that run noted in its journal may be at most one chunk a job less.
"""

import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time

PROGRAM, TOP = sys.argv[1], sys.argv[2]
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else random.SystemRandom().randrange(1 << 32)
KILLS, JOBS, CHUNK = 20, 3, 8 << 20
RECORD = struct.Struct("<32sQI36s32sI")  # manifest/import-journal.c
# What a run reads besides chunks: libraries, headers of weight files, the journal.
OTHER = 8 << 20

SRC, REMOTE, STATE = (os.path.join(TOP, d) for d in ("src", "remote", "state"))
ENV = dict(os.environ, XDG_STATE_HOME=STATE)
LINE = [PROGRAM, "import", SRC, "o/m", "--remote", "dir:" + REMOTE, "--jobs", str(JOBS), "--json"]


def fail(text):
    sys.exit(f"seed {SEED}: {text}")


def make_source():
    rng = random.Random(SEED)
    os.makedirs(SRC)
    for i in range(3):
        sizes = [rng.randrange(1, 24 << 20) for _ in range(3)]
        header, end = {}, 0
        for j, size in enumerate(sizes):
            header[f"t{i}.{j}"] = {"dtype": "U8", "shape": [size], "data_offsets": [end, end + size]}
            end += size
        text = json.dumps(header).encode()
        with open(f"{SRC}/w{i}.safetensors", "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + rng.randbytes(end))
    with open(f"{SRC}/same.bin", "wb") as f:  # chunks that are all alike
        f.write(bytes(range(256)) * (CHUNK // 256) * 4)


def noted():
    """Bytes that the journal knows."""
    total = 0
    state = os.path.join(STATE, "mooncakefs")
    for name in os.listdir(state) if os.path.isdir(state) else []:
        if name.endswith(".journal"):
            data = open(os.path.join(state, name), "rb").read()
            whole = len(data) // RECORD.size * RECORD.size
            total += sum(r[2] for r in RECORD.iter_unpack(data[:whole]))
    return total


def fresh():
    for d in (REMOTE, STATE):
        shutil.rmtree(d, ignore_errors=True)
    os.makedirs(REMOTE)


def finished(out):
    return json.loads(out.strip().splitlines()[-1])


def visible():
    out = subprocess.run([PROGRAM, "ls", "--remote", "dir:" + REMOTE], env=ENV, check=True,
                         capture_output=True, text=True).stdout
    return out.strip()


def kill_at(delay):
    """Runs an import and kills it after delay seconds. False: it had ended before."""
    before = noted()
    p = subprocess.Popen(LINE, env=ENV, stdout=subprocess.DEVNULL)
    time.sleep(delay)
    p.send_signal(signal.SIGSTOP)
    try:
        io = dict(line.split(": ") for line in open(f"/proc/{p.pid}/io").read().splitlines())
        read = int(io["rchar"])
    except (OSError, KeyError, ValueError):
        read = 0
    p.kill()
    if p.wait() == 0:
        return False
    after = noted()
    # It was killed after the end, when all is published and the journal is gone.
    if after == 0 and visible() != "":
        return True
    if read - (after - before) > JOBS * CHUNK + OTHER:
        fail(f"a run read {read} bytes and noted {after - before}")
    return True


print(f"seed {SEED}")
make_source()
fresh()
start = time.monotonic()
whole = finished(subprocess.run(LINE, env=ENV, check=True, capture_output=True, text=True).stdout)
seconds = time.monotonic() - start
data = whole["bytes"] - whole["hole_bytes"]
rng = random.Random(SEED + 1)
kills, resumed, longest = 0, 0, 0
fresh()
while kills < KILLS:
    if kill_at(rng.uniform(0, seconds)):
        kills += 1
        if visible() not in ("", f"o/m@{whole['revision']}  (latest)", f"o/m@{whole['revision']}"):
            fail(f"half an import is visible: {visible()}")
        if rng.random() < 0.7:
            continue
    known = noted()
    r = subprocess.run(LINE, env=ENV, capture_output=True, text=True)
    if r.returncode != 0:
        fail(f"the resumed import failed: {r.stderr}")
    last = finished(r.stdout)
    if last["id"] != whole["id"] or last["revision"] != whole["revision"]:
        fail(f"the resumed import is another: {last}")
    if last["read_bytes"] + last["resumed_bytes"] != data or last["resumed_bytes"] > known:
        fail(f"{data} bytes of data, {known} known: {last}")
    if known - last["resumed_bytes"] > 0 and last["read_bytes"] > data - known + JOBS * CHUNK:
        fail(f"{known} bytes were known: {last}")
    resumed += last["resumed_bytes"]
    fresh()
subprocess.run(LINE, env=ENV, check=True, capture_output=True)
subprocess.run([PROGRAM, "verify", "o/m", "--remote", "dir:" + REMOTE], env=ENV, check=True,
               stdout=subprocess.DEVNULL)
print(f"{kills} kills, {data >> 20} MiB of data, {resumed >> 20} MiB resumed")
