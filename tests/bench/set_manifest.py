"""A manifest of 139,583 tensors and 1 TB: the time to the first byte, memory."""
import json
import os
import shutil
import time

from machine import MIB, TESTS, Mount, memory, output, program, wait_for

FIRST = "model-1-of-61.safetensors"


def _first_byte(bench, remote, *options):
    """Milliseconds from the start of the program to the first byte, and its memory afterwards."""
    with Mount(bench, remote, "--dram", "64MiB", *options) as m:
        with open(f"{m.point}/checkpoints/moonshotai/kimi@1/{FIRST}", "rb") as f:
            f.read(1)
        ms = (time.monotonic() - m.begin) * 1e3
        return ms, memory(m.pid) / MIB


def manifest(bench, table, rounds, scale):
    del scale
    src, remote_dir = bench.path("remote", "kimi"), bench.folder("remote")
    output(f"{TESTS}/gen-checkpoint", "kimi-k2", src, "--fill", "dots")
    remote = "dir:" + remote_dir
    bench.import_tree(src, "moonshotai/kimi@1", remote, "--reference")
    path = f"{remote_dir}/checkpoints/moonshotai/kimi/1/manifest.json"
    size = os.path.getsize(path) / MIB
    table.note(f"manifest: {size:.1f} MiB")
    nvme = bench.folder("nvme")
    cold = [_first_byte(bench, remote) for _ in range(rounds)]
    table.values("mount to first byte, no index", [ms for ms, _ in cold], "ms", 1000)
    _first_byte(bench, remote, "--nvme", f"{nvme},1GiB")
    wait_for(lambda: any(files for _, _, files in os.walk(f"{nvme}/manifests")))
    warm = [_first_byte(bench, remote, "--nvme", f"{nvme},1GiB") for _ in range(rounds)]
    table.values("mount to first byte, index", [ms for ms, _ in warm], "ms", 50)
    table.values("daemon memory, steady, index", [b for _, b in warm], "MiB", 64)
    table.values("daemon memory, steady, no index", [b for _, b in cold], "MiB")
    peaks = []
    for _ in range(rounds):
        said = json.loads(output(program("tests/bench-manifest"), "parse", path, bench.path("index")))
        peaks.append(said["peak_bytes"] / MIB)
    table.values("memory at the peak of parsing (10 x manifest)", peaks, "MiB", 10 * size)
    shutil.rmtree(src)
