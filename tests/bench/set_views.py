"""Views: the header of a huge model's rank, data put together from resident sources, cold ranks."""
import os
import shutil
import struct
import subprocess
import sys
import time

from machine import MIB, TESTS, Mount, Proxy, Server, cpu, drop, output, program, read_file, wait_for

sys.path.insert(0, os.path.join(TESTS, "lib"))
import checkpoints  # noqa: E402

TP = 8
MODEL = "bench/m"
DRAM = "--dram", "4GiB", "--kv-dram", "0"

# What is cut of a model, how, and how often it is there: about 256 MiB of each kind.
KINDS = {
    "column-parallel": ([("F8_E4M3", [16384, 2048])] * 8, 0),     # a run is a rank's whole tensor
    "7 KiB runs": ([("BF16", [1024, 28672])] * 5, 1),             # Llama-70B's down_proj
    "fp8 256 B runs": ([("F8_E4M3", [7168, 2048])] * 18, 1),      # DeepSeek-V3's experts' down_proj
}


def _rank(mount, model, rank, layout=f"tp{TP}"):
    return f"{mount.point}/views/{model}@1/{layout}/rank-{rank:05d}/model.safetensors"


def _plain(mount, kind):
    return f"{mount.point}/checkpoints/{MODEL}@1/{_name(kind)}.safetensors"


def _name(kind):
    return kind.replace(" ", "_")


def _header_ms(path):
    """Milliseconds until the header of a file was read, and its bytes."""
    begin = time.monotonic()
    with open(path, "rb", buffering=0) as f:
        left = size = 8 + struct.unpack("<Q", f.read(8))[0]
        left -= 8
        while left > 0:
            left -= len(f.read(min(left, MIB)))
    return (time.monotonic() - begin) * 1e3, size


def headers(bench, table, rounds):
    src = bench.path("remote", "v3")
    remote = "dir:" + bench.folder("remote")
    output(f"{TESTS}/gen-checkpoint", "deepseek-v3", src, "--fill", "dots")
    bench.import_tree(src, "deepseek-ai/v3@1", remote, "--reference")
    nvme = bench.folder("nvme")
    options = "--dram", "256MiB", "--kv-dram", "0", "--nvme", f"{nvme},1GiB"
    with Mount(bench, remote, *options) as m:  # the first load of a node writes the index
        os.listdir(f"{m.point}/checkpoints/deepseek-ai/v3@1")
        wait_for(lambda: any(files for _, _, files in os.walk(f"{nvme}/manifests")))
    first, spent, again = [], [], []
    for i in range(rounds):
        with Mount(bench, remote, *options) as m:
            path = _rank(m, "deepseek-ai/v3", i % TP)
            os.listdir(f"{m.point}/checkpoints/deepseek-ai/v3@1")
            before = sum(cpu(m.pid).values())
            ms, size = _header_ms(path)
            first.append(ms)
            spent.append((sum(cpu(m.pid).values()) - before) * 1e3)
            again += [_header_ms(path)[0] for _ in range(3)]
    table.note(f"DeepSeek-V3, tp{TP}: a header of {size / MIB:.1f} MiB")
    table.values("open + header of a rank, first time", first, "ms", 300)
    table.values("CPU of the daemon for that", spent, "ms", 300)
    table.values("open + header of a rank, again", again, "ms", 5)
    shutil.rmtree(src)


def _model(bench, scale):
    """A checkpoint of the three kinds, and layouts: one of each kind, and one of all."""
    top, rules = bench.folder("source"), {}
    for kind, (tensors, dim) in KINDS.items():
        name = _name(kind)
        named = [(f"{name}.{i}", dtype, [rows // (scale if dim else 1), columns])
                 for i, (dtype, (rows, columns)) in enumerate(tensors)]
        checkpoints.write_safetensors(f"{top}/{name}.safetensors", named, "pattern")
        rules[name] = {"match": f"{name}.*", "split": [{"axis": "tp", "dim": dim}]}
    checkpoints.write_json(f"{top}/config.json", {"model_type": "bench"})
    layouts = [(name, [rule]) for name, rule in rules.items()] + [("all", list(rules.values()))]
    for name, used in layouts:
        checkpoints.write_json(bench.path(f"{name}.json"), {
            "format": "reshard-layout", "version": 1, "name": name, "default": "drop",
            "mesh": {"axes": [["tp", TP]]}, "rules": used})
    return top, [bench.path(f"{name}.json") for name, _ in layouts]


def _again(path):
    """A read that the page cache cannot answer."""
    drop(path)
    return read_file("read", path) / 1e9


def resident(bench, table, remote, rounds):
    """A rank's file is put together from resident sources once, so there are as many rounds as ranks."""
    targets = dict(zip(KINDS, (0.8, 0.4, None)))
    with Mount(bench, remote, *DRAM, "--no-passthrough") as m:
        for kind, target in targets.items():
            plain, view = _plain(m, kind), iter(range(TP))
            read_file("read", plain)

            def ours(kind=kind, m=m, view=view):
                return read_file("read", _rank(m, MODEL, next(view), _name(kind))) / 1e9

            pairs = table.in_turn(min(2 * rounds, TP), ours, lambda plain=plain: _again(plain))
            if target is not None:
                table.pairs(f"view, {kind} / plain, by the daemon", pairs, "GB/s", target)
            else:
                table.pairs(f"view, {kind}, by the daemon / 1 GB/s", [(o, 1) for o, _ in pairs], "GB/s", 1)


def materialised(bench, table, remote, rounds):
    kind = next(iter(KINDS))
    with Mount(bench, remote, *DRAM) as m:
        plain, view = _plain(m, kind), _rank(m, MODEL, 0, _name(kind))
        read_file("read", plain)
        for _ in range(2):  # once without an image, then into one
            _again(view)
        for path in plain, view:
            io = os.getxattr(path, "user.mooncake.io").decode()
            if io != "passthrough":
                table.note(f"{os.path.basename(path)} is not served by passthrough but {io}")
        pairs = table.in_turn(3 * rounds, lambda: read_file("read", view, 8 * TP) / 1e9,
                              lambda: read_file("read", plain, 8) / 1e9)
        table.pairs("materialised view / plain file, passthrough", pairs, "GB/s", 0.95)


def cold(bench, table, proxy, size, rounds):
    """Eight processes read a rank each; the proxy counts what the server sent."""
    def remote_bytes(dram, *more):
        with Mount(bench, proxy.url, "--dram", str(dram), "--kv-dram", "0", *more) as m:
            paths = [_rank(m, MODEL, rank, "all") for rank in range(TP)]
            for path in paths:
                os.stat(path)
            before = proxy.to_client()
            readers = [subprocess.Popen([program("tests/read-file"), "read", p], stdout=subprocess.DEVNULL)
                       for p in paths]
            if any([p.wait() for p in readers]):
                raise SystemExit("a reader failed")
            return (proxy.to_client() - before) / MIB, size / MIB

    table.pairs("8 ranks cold: remote bytes / unique", [remote_bytes(size * 5 // 4) for _ in range(rounds)],
                "MiB", 1.05, at_least=False)
    half = [ours / unique for ours, unique in (remote_bytes(size // 2) for _ in range(rounds))]
    table.values("the same with DRAM for half of the model", half, "")

    def with_nvme():
        tier = bench.folder("nvme")
        try:
            return remote_bytes(size // 2, "--nvme", f"{tier},{4 * size}")
        finally:
            shutil.rmtree(tier)

    table.pairs("the same with NVMe for the rest", [with_nvme() for _ in range(rounds)], "MiB", 1.05,
                at_least=False)


def views(bench, table, rounds, scale):
    server = Server(bench)
    top, layouts = _model(bench, scale)
    size = sum(os.path.getsize(f"{top}/{name}") for name in os.listdir(top))
    bench.import_tree(top, f"{MODEL}@1", server.url)
    for path in layouts:
        output(program("mooncakefs"), "layout", "add", path, "--remote", server.url)
    resident(bench, table, "dir:" + server.export, rounds)
    materialised(bench, table, "dir:" + server.export, rounds)
    cold(bench, table, Proxy(bench, server), size, rounds)
    headers(bench, table, rounds)
