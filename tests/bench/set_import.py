"""Import against what bounds it: the rate of the source, or of the hash on all cores."""
import json
import os
import shutil

from machine import GIB, MIB, measured, output, program, read_file, spent_by_children


def import_set(bench, table, rounds, scale):
    files, size = 4, 512 * MIB // scale
    remote_dir = bench.folder("remote")
    src = bench.weights("remote/source", files, size)
    os.sync()

    def bound():
        # One file stands for all; they differ in nothing.
        return min(read_file("read", f"{src}/w0.bin", 2),
                   measured(program("tests/sha-rate"), str(os.cpu_count()), "1")) / 1e9

    def run(name, remote, *more):
        before = spent_by_children()
        said = bench.import_tree(src, f"bench/{name}@1", remote, *more)
        if said["read_bytes"] != files * size:
            raise SystemExit(f"not each byte was read once: {said}")
        spent = spent_by_children() - before
        cpu[name] = spent / (said["read_bytes"] / GIB)
        return said["read_bytes"] / said["seconds"] / 1e9

    def reference():
        shutil.rmtree(f"{remote_dir}/checkpoints", ignore_errors=True)
        return run("ref", "dir:" + remote_dir, "--reference")

    def copy():
        shutil.rmtree(copy_dir, ignore_errors=True)
        os.mkdir(copy_dir)
        return run("copy", "dir:" + copy_dir)

    cpu = {}
    copy_dir = "/dev/shm/" + os.path.basename(bench.tmp)
    reference()
    table.pairs("import --reference / min(source, cores x SHA-256)",
                table.in_turn(rounds, reference, bound), "GB/s", 0.8)
    before = spent_by_children()
    hashed = json.loads(output(program("tests/sha-rate"), "1", "1"))["bytes"] / GIB
    table.note(f"CPU s/GiB: import {cpu['ref']:.2f}, SHA-256 alone "
               f"{(spent_by_children() - before) / hashed:.2f}")
    try:
        copy()
        table.pairs("import that copies (to memory) / the same",
                    table.in_turn(rounds, copy, bound), "GB/s", None)
        table.note(f"CPU s/GiB: import that copies {cpu['copy']:.2f}")
    finally:
        shutil.rmtree(copy_dir, ignore_errors=True)
