"""Reshard plans: planner and binder by themselves, and the command over a checkpoint's headers."""
import json
import os
import shutil
import time

from machine import MIB, TESTS, output, program


def _command(folder, *args):
    """Milliseconds of the whole command, and its peak memory in MiB."""
    begin = time.monotonic()
    pid = os.posix_spawn(program("mooncakefs"), ["mooncakefs", "plan", "--model", folder, *args], os.environ,
                         file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
    _, status, used = os.wait4(pid, 0)
    assert status == 0, args
    return (time.monotonic() - begin) * 1e3, used.ru_maxrss * 1024 / MIB


def plan(bench, table, rounds, scale):
    del scale
    runs = [[json.loads(x) for x in output(program("tests/bench-plan"), "json").splitlines()]
            for _ in range(rounds)]
    for lines in zip(*runs):
        table.values(lines[0]["name"], [x["value"] for x in lines], lines[0]["unit"], lines[0]["limit"])
    for model, args in (("llama-3-70b", ("--from", "tp8", "--to", "tp4")),
                        ("kimi-k2", ("--from", "tp16", "--to", "tp8-pp2")),
                        ("deepseek-v3", ("--to", "tp8"))):
        folder = bench.path(model)
        output(f"{TESTS}/gen-checkpoint", model, folder)
        seen = [_command(folder, *args) for _ in range(rounds)]
        table.values(f"command, {model}: headers to plan", [ms for ms, _ in seen], "ms", 1000)
        table.values(f"command, {model}: peak memory", [m for _, m in seen], "MiB", 1000)
        shutil.rmtree(folder)
