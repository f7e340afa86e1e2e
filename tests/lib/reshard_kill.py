"""Kills a reshard 10 times, resumes it, and counts what all the runs together read from the server.

reshard_kill.py PROGRAM DIR URL PROXY-URL PROXY-COMMAND… [-- SEED]. URL is the server, PROXY-URL the same
through the proxy that counts.
"""
import json
import os
import random
import signal
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), HERE]
import checkpoints  # noqa: E402
import models  # noqa: E402

ARGS, _, LAST = " ".join(sys.argv[1:]).partition(" -- ")
PROGRAM, TOP, DIRECT, URL, *PROXY = ARGS.split()
SEED = int(LAST) if LAST else random.SystemRandom().randrange(1 << 32)
MIB, KILLS, JOBS, TP = 1 << 20, 10, 1, 2
# Of a killed run the chunks in work are lost, and with them what of the source they needed: a chunk of
# a tensor cut by columns needs rows of TP times its size. Two requests in flight read ahead 4 MiB.
LOST = (JOBS * TP * 8 + 8) * MIB
REMOTE = ["--remote", URL, "--connections", "1", "--depth", "2"]


def received():
    return int(subprocess.run([*PROXY, "stats"], check=True, capture_output=True, text=True).stdout.split()[2])


def proxy(*order):
    subprocess.run([*PROXY, "set", *order], check=True)


def line(revision):
    return [PROGRAM, "reshard", "acme/model@1", f"tp{TP}", revision, *REMOTE, "--jobs", str(JOBS), "--json"]


def reshard(revision):
    *progress, done = map(json.loads, subprocess.run(line(revision), check=True, capture_output=True,
                                                     text=True).stdout.splitlines())
    steps = [p["bytes_done"] for p in progress]
    assert steps == sorted(steps), progress  # none of a run that had next to nothing left
    assert all(p["event"] == "progress" and p["stage"] == "reshard" and "bytes_per_second" in p and
               p["bytes_done"] <= p["bytes_total"] == done["bytes"] for p in progress), progress
    return done


def visible():
    out = subprocess.run([PROGRAM, "ls", "--remote", DIRECT], check=True, capture_output=True, text=True).stdout
    return "acme/killed" in out


def kill_after(n):
    """Starts a run and kills it once n more bytes came from the server. False: it had ended before."""
    start = received()
    with open(os.devnull, "wb") as null:
        p = subprocess.Popen(line("acme/killed@1"), stdout=null)
    while p.poll() is None and received() - start < n:
        pass
    p.send_signal(signal.SIGKILL)
    return p.wait() != 0


def main():
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    m = models.resized(models.MODELS["llama-3-8b"], 1, 4)
    m.config["vocab_size"] = 24576
    source = os.path.join(TOP, "source")
    done = checkpoints.write(m, list(models.tensors(m.config)), source, "pattern")
    size = done["tensor_bytes"]
    subprocess.run([PROGRAM, "import", source, "acme/model@1", "--remote", DIRECT], check=True,
                   stdout=subprocess.DEVNULL)
    proxy("rate", str(80 * MIB))
    start, kills, ended, killed = received(), 0, 1, 0
    while kills < KILLS:
        before, more = received(), rng.randrange(8 * MIB, 28 * MIB)
        if kill_after(more):
            kills += 1
            killed += received() - before
            if ended == 1 and visible():  # killed between its end and its exit
                subprocess.run([PROGRAM, "verify", "acme/killed", "--remote", DIRECT], check=True)
                ended += 1
        else:
            ended += 1  # the next run begins anew
    last = reshard("acme/killed@1")
    total = received() - start
    assert last["read_bytes"] + last["resumed_bytes"] <= size + LOST, (last, size)
    start = received()
    proxy("pass")
    whole = reshard("acme/whole@1")
    once = received() - start
    assert whole["id"] == last["id"], (whole, last)
    assert size <= once <= size * 1.02 + MIB, (once, size)
    again = total - ended * once
    assert again <= KILLS * LOST and again < killed * 0.8, (total, once, ended, killed)
    assert last["resumed_bytes"] > 0 or ended > 1, last
    print(f"{KILLS} kills of {size / MIB:.0f} MiB: {again / MIB:.0f} MiB read twice, "
          f"{last['resumed_bytes'] / MIB:.0f} MiB resumed in the end")


if __name__ == "__main__":
    main()
