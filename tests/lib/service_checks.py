"""A mount under a service manager that this script plays: PROGRAM MOUNTPOINT CONFIG CHECK..., in this order."""
import atexit
import errno
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

from checks import MIB, until

program, mnt, config, *checks = sys.argv[1:]
LIMIT_S = 60  # for what takes milliseconds on an idle machine
TMP = os.path.dirname(config)
with open(f"{TMP}/src/big", "rb") as source:
    BIG = hashlib.sha256(source.read()).hexdigest()


def equal(a, b, what):
    if a != b:
        raise SystemExit(f"FAILED: {what}: {a!r}, not {b!r}")


def write_config(**changes):
    """Replaces the configuration file; a key of None goes."""
    with open(config, encoding="utf-8") as f:
        values = json.load(f)
    values.update(changes)
    with open(config, "w", encoding="utf-8") as f:
        json.dump({k: v for k, v in values.items() if v is not None}, f)


class Service:
    """The daemon, its notifications and its log, line by line."""

    def __init__(self, *options, abstract=False, **env):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        name = f"@mooncakefs-test-{os.getpid()}" if abstract else f"{TMP}/notify"
        if not abstract and os.path.exists(name):
            os.unlink(name)
        self.sock.bind("\0" + name[1:] if abstract else name)
        self.sock.settimeout(LIMIT_S)
        self.log = open(f"{TMP}/service-log", "w+", encoding="utf-8")
        self.read = open(f"{TMP}/service-log", encoding="utf-8")
        self.daemon = subprocess.Popen([program, "mount", "-f", mnt, "--config", config, *options],
                                       stderr=self.log, env=dict(os.environ, NOTIFY_SOCKET=name, **env))
        atexit.register(self.daemon.kill)

    def told(self, want, count=None):
        """Reads notifications until one has the line want: all of its lines, or how many before it had the line count."""
        seen = 0
        while True:
            lines = self.sock.recv(4096).decode().split("\n")
            if want in lines:
                return lines if count is None else seen
            seen += count in lines

    def logged(self, *texts):
        """Reads the log on until a line has all the texts; that line."""
        end = time.monotonic() + LIMIT_S
        seen, part = [], ""
        while time.monotonic() < end:
            part += self.read.readline()
            if not part.endswith("\n"):
                if self.daemon.poll() is not None:
                    break
                time.sleep(0.01)
                continue
            seen.append(part)
            if all(t in part for t in texts):
                return part
            part = ""
        raise SystemExit(f"FAILED: no line with {texts} in:\n{''.join(seen)}")

    def signal(self, number):
        self.daemon.send_signal(number)

    def end(self):
        """SIGTERM; told that it stops; ends with 0."""
        self.signal(signal.SIGTERM)
        self.told("STOPPING=1")
        equal(self.daemon.wait(LIMIT_S), 0, "exit code after SIGTERM")
        self.sock.close()


def reads():
    with open(f"{mnt}/checkpoints/o/m/file", encoding="ascii") as f:
        equal(f.read(), "hello\n", "the file")


def ready():
    """The manager is told when the tree answers."""
    s = Service(WATCHDOG_USEC="2000000")
    lines = s.told("READY=1")
    equal(lines[1], f"STATUS=Serving {mnt}", "status")
    reads()
    return s


def watchdog(s):
    """The manager is told that the main loop turns."""
    for _ in range(2):
        s.told("WATCHDOG=1")


def hang(s):
    """A worker that hangs is killed and replaced before the manager hears of it: its messages go on, and so do open files."""
    with open(f"{mnt}/.mooncake/status", encoding="utf-8") as f:
        pid = json.load(f)["mount"]["worker_pid"]
    with open(f"{mnt}/checkpoints/o/m/file", encoding="ascii") as f:
        os.kill(pid, signal.SIGSTOP)
        s.logged("event=worker-hangs", f"pid={pid}", "another one goes on")
        s.logged("event=taken-over")
        equal(f.read(), "hello\n", "a file that was open")
    told = s.told("READY=1", count="WATCHDOG=1")
    equal(told >= 2, True, f"{told} messages while it hung")
    s.told("WATCHDOG=1")
    reads()


def tier(name):
    """Capacity and use of a tier's part for checkpoints."""
    with open(f"{mnt}/.mooncake/status", encoding="utf-8") as f:
        tiers = json.load(f)["tiers"]
    t = next(t for t in tiers if (t["tier"], t["data"]) == (name, "checkpoints"))
    return t["capacity_bytes"], t["used_bytes"]


def reload(s):
    """SIGHUP applies what can change, and the log names what takes a new mount."""
    write_config(**{"log-level": "warning", "connections": 3})
    s.signal(signal.SIGHUP)
    lines = s.told("RELOADING=1")
    equal(lines[1].startswith("MONOTONIC_USEC="), True, "time of the reload")
    s.told("READY=1")
    line = s.logged("event=setting-kept", "name=connections")
    equal('value="2" file="3" text="takes a new mount"' in line, True, line)
    line = s.logged("event=setting-changed", "name=log-level")
    equal('value="warning" before="info"' in line, True, line)
    with open(f"{mnt}/.mooncake/config", encoding="utf-8") as f:
        shown = json.load(f)
    equal((shown["log-level"]["value"], shown["connections"]["value"]), ("warning", "2"), ".mooncake/config")
    reads()


def reload_sizes(s):
    """Tiers grow and shrink while they work: what no longer fits is evicted, and reads go on."""
    equal((tier("dram")[0], tier("nvme")[0]), (96 * MIB, 64 * MIB), "capacities before")
    write_config(**{"log-level": "info", "connections": None, "dram": "256MiB", "nvme": f"{TMP}/nvme,256MiB"})
    s.signal(signal.SIGHUP)
    s.logged("event=reload", "changed=3")
    equal((tier("dram")[0], tier("nvme")[0]), (192 * MIB, 192 * MIB), "capacities after growing")
    big = b""
    for _ in range(2):
        with open(f"{mnt}/checkpoints/o/m/big", "rb") as f:
            big = f.read()
    equal(hashlib.sha256(big).hexdigest(), BIG, "the big file")
    equal(tier("dram")[1] >= len(big), True, "it is in DRAM")
    write_config(**{"dram": "128MiB", "nvme": f"{TMP}/nvme,128MiB"})
    s.signal(signal.SIGHUP)
    s.logged("event=reload", "changed=2")
    capacity, used = tier("dram")
    equal((capacity, used <= capacity), (64 * MIB, True), "DRAM after shrinking")
    capacity, used = tier("nvme")
    equal((capacity, used <= capacity), (64 * MIB, True), "NVMe after shrinking")
    with open(f"{mnt}/checkpoints/o/m/big", "rb") as f:
        equal(hashlib.sha256(f.read()).hexdigest(), BIG, "the big file, afterwards")
    write_config(dram="64MiB")
    s.signal(signal.SIGHUP)
    s.logged("event=setting-kept", "name=dram", "64 MiB have to be left")
    equal(tier("dram")[0], 64 * MIB, "DRAM after a size that is too small")


def reload_kept(s):
    """A worker that follows one that died has what the reloads before changed."""
    write_config(dram="128MiB")
    with open(f"{mnt}/.mooncake/status", encoding="utf-8") as f:
        os.kill(json.load(f)["mount"]["worker_pid"], signal.SIGKILL)
    s.logged("event=worker-died")
    s.told("READY=1")
    s.told("RELOADING=1")
    until("the size of the file", lambda: tier("dram")[0] == 64 * MIB)
    reads()


def remotes():
    """URLs of several remotes, as far as there are several."""
    try:
        with open(f"{mnt}/.mooncake/status", encoding="utf-8") as f:
            return [m["url"] for m in json.load(f)["remotes"][0]["members"]]
    except OSError as e:
        equal(e.errno, errno.ESTALE, "a text of the worker before")
        return []


def reload_remotes(s):
    """Remotes that the file adds are used, by another worker that takes over; without the first one it takes a new mount."""
    os.mkdir(f"{TMP}/more")
    first, more = f"dir:{TMP}/remote#name=first", f"dir:{TMP}/more#name=more"
    with open(f"{mnt}/checkpoints/o/m/file", encoding="ascii") as f:
        write_config(remote=[more, first], dram="128MiB")
        s.signal(signal.SIGHUP)
        s.logged("event=setting-kept", "name=remote", "takes a new mount")
        write_config(remote=[first, more])
        s.signal(signal.SIGHUP)
        s.logged("event=setting-kept", "name=remote", "takes over")
        until("the next worker", lambda: remotes() != [])
        equal(f.read(), "hello\n", "a file that was open")
    equal(remotes(), [f"dir:{TMP}/remote", f"dir:{TMP}/more"], "remotes in use")
    with open(f"{mnt}/checkpoints/o/m/big", "rb") as f:
        equal(hashlib.sha256(f.read()).hexdigest(), BIG, "the big file, by the next worker")


def reload_mistake(s):
    """A configuration file with a mistake changes nothing and is told with its line."""
    write_config(**{"log-level": "loud"})
    s.signal(signal.SIGHUP)
    s.told("READY=1")
    line = s.logged("event=reload", "error=")
    equal(f'{config}:1: \\"log-level\\"' in line or f'{config}:1: "log-level"' in line, True, line)
    reads()


def log_json(s):
    """The log's format can change to one JSON object a line."""
    write_config(**{"log-level": "info", "log-format": "json", "dram": "128MiB"})
    s.signal(signal.SIGHUP)
    s.told("READY=1")
    record = json.loads(s.logged('"event":"reload"'))
    equal((record["level"], record["changed"], record["kept"]), ("info", "1", "0"), "the line of the reload")


def dump(s):
    """SIGUSR1 writes the state to the log."""
    s.signal(signal.SIGUSR1)
    for part in ("mount", "tiers", "recovery", "kv"):
        record = json.loads(s.logged('"event":"state"', f'"part":"{part}"'))
        json.loads(record["value"])


def stop(s):
    """SIGTERM stops, the manager is told, and the mount is gone."""
    s.end()
    equal(os.path.exists(f"{mnt}/checkpoints"), False, "mounted after SIGTERM")


def abstract():
    """A notification socket may be abstract; a watchdog of another process is not answered."""
    write_config(**{"log-format": None})
    s = Service(abstract=True, WATCHDOG_USEC="1000", WATCHDOG_PID="1")
    s.told("READY=1")
    s.logged("event=mounted")
    s.signal(signal.SIGHUP)
    equal(s.sock.recv(4096).split(b"\n")[0], b"RELOADING=1", "the notification after READY")
    s.end()


def flag_stays():
    """A flag of the command line stays whatever the file says."""
    s = Service("--log-level", "warning")
    s.told("READY=1")
    write_config(**{"log-level": "debug"})
    s.signal(signal.SIGHUP)
    s.told("RELOADING=1")
    s.told("READY=1")
    s.end()
    with open(f"{TMP}/service-log", encoding="utf-8") as f:
        equal(f.read(), "", "the log of a level above")


SERVICE = None
for check in checks:
    print(check, flush=True)
    if check == "ready":
        SERVICE = ready()
    elif check in ("abstract", "flag_stays"):
        globals()[check]()
    else:
        globals()[check](SERVICE)
