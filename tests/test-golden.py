"""The golden manifest checked by a reader that shares no code with the program: canonical bytes, id,
file digests, checksums of holes."""
import base64
import hashlib
import json
import pathlib
import struct

MIB = 1 << 20
GOLDEN = pathlib.Path(__file__).parent / "golden" / "manifest-v1.json"
# tests/test-manifest.c expects the writer to produce exactly this id.
ID = "4168fa39642c1cdedef35e6970d6192958cbf2ac664d49a29c1903ee6e6130ec"


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def spans(file, chunks):
    """(length, 32 bytes) of each span in order; takes the file's chunks off the list."""
    holes, pos = list(file.get("holes", [])), 0
    mine = [chunks.pop(0) for _ in range(file.get("chunks", 0))]
    while pos < file["size"]:
        if holes and holes[0][0] == pos:
            length, sha = holes.pop(0)[1], bytes(32)
        else:
            length, sha = mine.pop(0)
        yield length, sha
        pos += length
    assert pos == file["size"] and not mine and not holes, file["path"]


def check_file(file, chunks):
    h = hashlib.sha256()
    for length, sha in spans(file, chunks):
        h.update(struct.pack("<Q", length) + sha)
    assert h.hexdigest() == file["digest"], file["path"]
    raw = base64.b64decode(file["crc32c"], validate=True)
    crcs = struct.unpack(f"<{len(raw) // 4}I", raw)
    assert len(crcs) == -(-file["size"] // MIB), file["path"]
    for off, length in file.get("holes", []):
        for block in range(-(-off // MIB), (off + length) // MIB):
            assert crcs[block] == crc32c(bytes(MIB)), (file["path"], block)


raw = GOLDEN.read_bytes()
doc = json.loads(raw)
assert hashlib.sha256(raw).hexdigest() == ID
assert json.dumps(doc, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() == raw
chunks = [(n, bytes.fromhex(s)) for n, s in zip(doc["chunks"]["len"], doc["chunks"]["sha256"])]
for entry in doc["files"]:
    if entry["type"] == "file":
        check_file(entry, chunks)
assert not chunks
paths = [f["path"].encode() for f in doc["files"]]
assert paths == sorted(set(paths))
print("golden manifest: ok")
