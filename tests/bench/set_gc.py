"""Garbage collection of a large remote: chunks by the million in a local directory."""
import base64
import hashlib
import json
import os
import struct
import time

from machine import output, program

CHUNKS, CHECKPOINTS, KEPT = 1_000_000, 3, 250_000  # of each checkpoint
OLD = 1_000_000_000


def _manifest(names):
    """One file of so many chunks of one byte each, as docs/FORMAT.md describes it."""
    spans = b"".join(struct.pack("<Q", 1) + bytes.fromhex(n) for n in names)
    crcs = struct.pack("<I", 0) * -(-len(names) // (1 << 20))
    doc = {"format": "mooncakefs-manifest", "version": 1, "root": {"mode": 0o755, "mtime": [0, 0]},
           "chunks": {"len": [1] * len(names), "sha256": names},
           "files": [{"path": "w.bin", "type": "file", "mode": 0o644, "mtime": [0, 0],
                      "size": len(names), "chunks": len(names),
                      "crc32c": base64.b64encode(crcs).decode(),
                      "digest": hashlib.sha256(spans).hexdigest()}]}
    return json.dumps(doc, sort_keys=True, separators=(",", ":")).encode()


def _remote(bench, count):
    top = bench.folder("remote")
    names = [hashlib.sha256(str(i).encode()).hexdigest() for i in range(count)]
    for i in range(256):
        os.makedirs(f"{top}/chunks/{i:02x}")
    for n in names:
        path = f"{top}/chunks/{n[:2]}/{n}"
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        os.utime(path, (OLD, OLD))
    kept = KEPT * count // CHUNKS
    used = set()
    for i in range(CHECKPOINTS):
        part = names[i * kept // 2:i * kept // 2 + kept]  # neighbours share a half
        used.update(part)
        rev = f"{top}/checkpoints/bench/m/v{i}"
        os.makedirs(rev)
        text = _manifest(part)
        with open(f"{rev}/manifest.id", "w", encoding="ascii") as f:
            f.write(hashlib.sha256(text).hexdigest() + "\n")
        with open(f"{rev}/manifest.json", "wb") as f:
            f.write(text)
    return top, used


def gc(bench, table, _rounds, scale):
    top, used = _remote(bench, CHUNKS // scale)
    env = dict(os.environ, XDG_STATE_HOME=bench.folder("state"))

    def run(*more):
        begin = time.monotonic()
        said = output(program("mooncakefs"), "gc", "--remote", f"dir:{top}", "--json", *more, env=env)
        return time.monotonic() - begin, json.loads(said.strip().splitlines()[-1])

    seconds, found = run()
    table.values("gc, dry run, 1 M chunks, 3 checkpoints", [seconds], "s", 60)
    seconds, removed = run("--delete")
    table.values(f"gc --delete of {removed['garbage']} of them", [seconds], "s", 60)
    left = {n for i in range(256) for n in os.listdir(f"{top}/chunks/{i:02x}")}
    # Names that manifests list and nobody made are missing; here there are none.
    exact = left == used and found["garbage"] == removed["garbage"] and removed["missing"] == 0
    table.note(f"left are exactly the {len(used)} that are referred to: {exact}")
    if not exact:
        raise SystemExit("gc removed what is in use, or left what is not")
