"""The control socket's protocol, from outside: SOCKET CHECK..."""
import json
import os
import random
import socket
import subprocess
import sys
import time

path, *checks = sys.argv[1:]
LIMIT_S = 60


def equal(a, b, what):
    if a != b:
        raise SystemExit(f"FAILED: {what}: {a!r}, not {b!r}")


class Peer:
    def __init__(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(LIMIT_S)
        self.sock.connect(path)
        self.file = self.sock.makefile("rb")

    def answer(self):
        """The next answer behind progress; None at the end of the connection."""
        while True:
            line = self.file.readline()
            if not line:
                return None
            answer = json.loads(line)
            if "progress" not in answer:
                return answer

    def ask(self, data):
        self.sock.sendall(data if isinstance(data, bytes) else json.dumps(data).encode() + b"\n")
        return self.answer()


def alive():
    """A good request is answered, as soon as the daemon has seen that earlier peers are gone."""
    while True:
        try:
            answer = Peer().ask({"command": "status"})
        except (BrokenPipeError, ConnectionResetError):
            continue
        if answer is not None and answer.get("error") != "EBUSY":
            break
        time.sleep(0.01)
    equal(answer["ok"], True, "a good request")


def garbage():
    """Lines of any bytes are refused, and the connection goes on."""
    alive()
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    rng = random.Random(seed)
    peer = Peer()
    for _ in range(200):
        line = bytes(rng.randrange(256) for _ in range(rng.randrange(200))).replace(b"\n", b" ")
        equal(peer.ask(line + b"\n")["ok"], False, "the answer to garbage")
    equal(peer.ask({"command": "status"})["ok"], True, "the same connection")


def pieces():
    """A request may come in pieces, and several in one."""
    peer = Peer()
    line = b'{"command":"refresh"}\n'
    for i in range(len(line) - 1):
        peer.sock.sendall(line[i:i + 1])
    equal(peer.ask(line[-1:] + line + line)["ok"], True, "the first")
    equal([peer.answer()["ok"] for _ in range(2)], [True, True], "the others")


def long_line():
    """A request of more than 64 KiB is refused and ends the connection."""
    peer = Peer()
    answer = peer.ask(b" " * 65536)
    equal((answer["ok"], answer["error"]), (False, "EMSGSIZE"), "the answer")
    equal(peer.answer(), None, "the connection")
    alive()


def many():
    """Nine connections: the ninth is told to come again, a closed one makes room."""
    peers = []
    while len(peers) < 8:
        peers.append(Peer())
        try:
            taken = (peers[-1].ask({"command": "refresh"}) or {"ok": False})["ok"]
        except (BrokenPipeError, ConnectionResetError):
            taken = False
        if not taken:  # the daemon has not seen yet that an earlier peer is gone
            peers.pop()
    ninth = Peer()
    equal(ninth.answer()["error"], "EBUSY", "the ninth")
    equal(ninth.answer(), None, "the ninth connection")
    equal(peers[0].ask({"command": "refresh"})["ok"], True, "the first, still")
    peers[0].sock.shutdown(socket.SHUT_RDWR)
    alive()


def left_alone():
    """A peer that goes away in the middle of a request or of an answer does no harm."""
    for data in (b'{"command":', b'{"command":"metrics"}\n' * 50, b""):
        peer = Peer()
        try:
            peer.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # turned away: there was no room yet
        peer.sock.close()
        peer.file.close()
    alive()


def other_user():
    """Who is neither root nor the user of the mount is refused, even when the file lets him connect."""
    os.chmod(path, 0o666)
    code = f"""
import os, socket
os.setgid(65534)
os.setuid(65534)
s = socket.socket(socket.AF_UNIX)
s.connect("{path}")
print(s.makefile().readline())
"""
    os.chmod(os.path.dirname(path), 0o755)
    out = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False)
    os.chmod(os.path.dirname(path), 0o700)
    os.chmod(path, 0o600)
    equal(json.loads(out.stdout)["error"], "EACCES", "the answer to another user")


def figures():
    """Status, configuration, metrics and events come as the mount shows them."""
    peer = Peer()
    for command, kind in (("status", dict), ("config", dict), ("metrics", str), ("events", str)):
        equal(isinstance(peer.ask({"command": command})["result"], kind), True, command)


for check in checks:
    print(check, flush=True)
    globals()[check]()
