"""Import against what bounds it: the rate of the source, or of the hash on all cores."""
import os
import shutil

from machine import MIB, measured, program, read_file


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
        said = bench.import_tree(src, f"bench/{name}@1", remote, *more)
        if said["read_bytes"] != files * size:
            raise SystemExit(f"not each byte was read once: {said}")
        return said["read_bytes"] / said["seconds"] / 1e9

    def reference():
        shutil.rmtree(f"{remote_dir}/checkpoints", ignore_errors=True)
        return run("ref", "dir:" + remote_dir, "--reference")

    def copy():
        shutil.rmtree(copy_dir, ignore_errors=True)
        os.mkdir(copy_dir)
        return run("copy", "dir:" + copy_dir)

    copy_dir = "/dev/shm/" + os.path.basename(bench.tmp)
    reference()
    table.pairs("import --reference / min(source, cores x SHA-256)",
                [(reference(), bound()) for _ in range(rounds)], "GB/s", 0.8)
    try:
        copy()
        table.pairs("import that copies (to memory) / the same",
                    [(copy(), bound()) for _ in range(rounds)], "GB/s", None)
    finally:
        shutil.rmtree(copy_dir, ignore_errors=True)
