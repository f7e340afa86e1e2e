"""What the measurements run on: files, an NFS server, a proxy, mounts, readers."""
import ctypes
import hashlib
import json
import os
import re
import resource
import signal
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
BUILD = os.environ.get("MC_BUILD", os.path.join(os.path.dirname(TESTS), "build"))
MIB, GIB = 1 << 20, 1 << 30
HZ = os.sysconf("SC_CLK_TCK")


def program(name):
    return os.path.join(BUILD, name)


def output(*argv, **how):
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, **how).stdout


def measured(*argv):
    """Runs a program that prints one line of JSON with bytes and seconds; bytes a second."""
    said = json.loads(output(*argv))
    return said["bytes"] / said["seconds"]


def read_file(way, path, passes=1):
    return measured(program("tests/read-file"), way, path, str(passes))


def drop(path):
    """The page cache of one file: what is clean and not mapped goes."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def cpu(pid):
    """CPU seconds of a process by the names of its threads."""
    total = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/stat", encoding="ascii") as f:
                name, rest = re.match(r"\d+ \((.*)\) (.*)", f.read()).groups()
        except FileNotFoundError:
            continue
        fields = rest.split()
        total[name] = total.get(name, 0) + (int(fields[11]) + int(fields[12])) / HZ
    return total


def spent_by_children():
    """CPU seconds of the programs that ran and ended."""
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    return r.ru_utime + r.ru_stime


def memory(pid):
    """Bytes of a process beyond what it shares with the DRAM tier: RssAnon + RssFile."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        found = re.findall(r"^(?:RssAnon|RssFile):\s+(\d+) kB", f.read(), re.M)
    return 1024 * sum(map(int, found))


class Bench:
    """A temporary directory, and everything started in it; close() ends and removes it all."""

    def __init__(self, tmp):
        self.tmp = tmp
        self.open = []

    def path(self, *names):
        p = os.path.join(self.tmp, *names)
        os.makedirs(os.path.dirname(p), exist_ok=True)
        return p

    def folder(self, *names):
        p = os.path.join(self.tmp, *names)
        os.makedirs(p, exist_ok=True)
        return p

    def close(self):
        for thing in reversed(self.open):
            thing.close()
        self.open = []

    def weights(self, name, count, size):
        """A directory of count files of random bytes, each of size bytes."""
        top = self.folder(name)
        for i in range(count):
            with open(f"{top}/w{i}.bin", "wb") as f:
                for at in range(0, size, 8 * MIB):
                    f.write(os.urandom(min(8 * MIB, size - at)))
        return top

    def import_tree(self, src, rev, remote, *more):
        env = dict(os.environ, XDG_STATE_HOME=self.folder("state"))
        out = output(program("mooncakefs"), "import", src, rev, "--remote", remote, "--json", *more,
                     env=env)
        return json.loads(out.strip().splitlines()[-1])


class Server:
    """NFS-Ganesha exporting bench.tmp/NAME/export."""

    def __init__(self, bench, name="nfs"):
        self.dir = bench.folder(name)
        self.export = bench.folder(name, "export")
        self._run("start")
        bench.open.append(self)

    def _run(self, how):
        r = subprocess.run([f"{TESTS}/lib/nfs-server", how, self.dir], stdout=subprocess.PIPE,
                           text=True, check=False)
        if r.returncode != 0:
            raise SystemExit(r.returncode)
        self.url = r.stdout.strip()
        self.port = re.search(r"nfsport=(\d+)", self.url).group(1)
        with open(f"{self.dir}/pid", encoding="ascii") as f:
            self.pid = int(f.read())

    def restart(self):
        """The same data on the same port, in the network that this process is in now."""
        self._run("restart")

    def close(self):
        subprocess.run([f"{TESTS}/lib/nfs-server", "stop", self.dir], check=False)


class SlowNetwork:
    """While entered, what is started lives in a network of its own, whose loopback passes rate bytes a
    second; with ports, from each of these. The kernel shapes it, so that the limit takes no CPU from what
    is measured."""

    CLONE_NEWNET = 0x40000000

    def __init__(self, rate, *ports):
        self.rate, self.ports = rate, ports
        self.home = None

    def __enter__(self):
        libc = ctypes.CDLL(None, use_errno=True)
        self.home = open("/proc/self/ns/net", encoding="ascii")  # noqa: SIM115, closed on exit
        if libc.unshare(self.CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        output("ip", "link", "set", "lo", "up")
        # Resolvers want an address that is not a loopback's (AI_ADDRCONFIG).
        output("ip", "address", "add", "192.0.2.1/32", "dev", "lo")
        if self.ports:
            self._limit_ports()
        else:
            output("tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", f"{8 * self.rate}bit",
                   "burst", "1mb", "latency", "50ms")
        return self

    def _limit_ports(self):
        output("tc", "qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb")
        for i, port in enumerate(self.ports):
            output("tc", "class", "add", "dev", "lo", "parent", "1:", "classid", f"1:{10 + i}", "htb", "rate",
                   f"{8 * self.rate}bit", "burst", "1mb", "quantum", "60000")
            output("tc", "filter", "add", "dev", "lo", "parent", "1:", "protocol", "ip", "u32", "match", "ip",
                   "sport", str(port), "0xffff", "flowid", f"1:{10 + i}")

    def __exit__(self, *_):
        ctypes.CDLL(None).setns(self.home.fileno(), self.CLONE_NEWNET)
        self.home.close()


class Proxy:
    """tests/tcp-proxy before an NFS server; its url goes through it."""

    def __init__(self, bench, server, name="proxy"):
        self.dir = bench.folder(name)
        self.process = subprocess.Popen([program("tests/tcp-proxy"), "run", self.dir, server.port])
        bench.open.append(self)
        wait_for(lambda: os.path.exists(f"{self.dir}/port"))
        with open(f"{self.dir}/port", encoding="ascii") as f:
            self.url = server.url.replace(f"nfsport={server.port}", f"nfsport={f.read().strip()}")

    def set(self, *order):
        output(program("tests/tcp-proxy"), "set", self.dir, *map(str, order))

    def to_client(self):
        return int(output(program("tests/tcp-proxy"), "stats", self.dir).split()[2])

    def close(self):
        self.process.kill()
        self.process.wait()


class Mount:
    """A mount in the foreground mode; weights of the revision bench/w@1 are at file(i)."""

    def __init__(self, bench, remote, *options):
        self.point = bench.folder("mnt")
        self.log_path = bench.path("log")
        self.remote = remote
        self.begin = time.monotonic()
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [program("mooncakefs"), "mount", "-f", self.point, "--remote", remote, *options],
                stdout=log, stderr=log)
        self.pid = self.process.pid
        bench.open.append(self)
        self.bench = bench
        wait_for(lambda: "event=mounted" in self.log() or self.process.poll() is not None, step=0.002)
        if self.process.poll() is not None:
            raise SystemExit(f"the mount failed: {self.log()}")
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as f:
            self.pid = int(f.read() or self.process.pid)  # the worker, where a keeper is between

    def since(self):
        """Seconds since the mount was begun."""
        return time.monotonic() - self.begin

    def log(self):
        with open(self.log_path, encoding="utf-8") as f:
            return f.read()

    def file(self, i):
        return f"{self.point}/checkpoints/bench/w@1/w{i}.bin"

    def attribute(self, i, name):
        return os.getxattr(self.file(i), f"user.mooncake.{name}").decode()

    def dram_dir(self):
        name = hashlib.sha256(f"{self.remote}\n{self.point}".encode()).hexdigest()[:32]
        return f"/run/mooncakefs/{name}"

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait() != 0:
            print(self.log())
        self.bench.open.remove(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self in self.bench.open:
            self.close()


def wait_for(condition, seconds=60, step=0.02):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("a wait has timed out")
        time.sleep(step)
