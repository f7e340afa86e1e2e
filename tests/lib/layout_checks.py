"""Checks of layouts/ in a mount; called by it-layouts.sh: layout_checks.py CHECK MOUNT TMP."""
import json
import os
import signal
import subprocess
import sys

from checks import content, errno_of, expect, until

TP2 = {"axes": [["tp", 2]]}
ROWS = [{"match": "**", "replicate": True}]


def document(name, **changes):
    """A layout that fits every model: all tensors on both ranks."""
    return dict({"format": "reshard-layout", "version": 1, "name": name, "mesh": TP2,
                 "rules": ROWS}, **changes)


def text(*args, **changes):
    return json.dumps(document(*args, **changes)).encode()


def put(path, data, flags=os.O_WRONLY | os.O_CREAT | os.O_EXCL):
    """Create, write, close; raises what any of them does."""
    fd = os.open(path, flags, 0o644)
    try:
        at = 0
        while at < len(data):
            at += os.write(fd, data[at:at + (1 << 20)])
    except OSError:
        errno_of(os.close, fd)
        raise
    os.close(fd)


class Tree:
    def __init__(self, mnt, tmp):
        self.layouts = f"{mnt}/layouts"
        self.model = f"{mnt}/views/acme/llama@r1"
        self.remote = f"{tmp}/remote/layouts"

    def at(self, name):
        return f"{self.layouts}/{name}"

    def why(self):
        return os.getxattr(self.layouts, "user.mooncake.error").decode()

    def is_there(self, name, data):
        expect("content", content(self.at(f"{name}.json")), data)
        expect("on the remote", content(f"{self.remote}/{name}.json"), data)
        expect("listed", f"{name}.json" in os.listdir(self.layouts), True)
        expect("view", sorted(os.listdir(f"{self.model}/{name}")), ["rank-00000", "rank-00001"])
        expect("listed view", name in os.listdir(self.model), True)

    def is_not_there(self, name):
        expect("stat", os.path.lexists(self.at(f"{name}.json")), False)
        expect("on the remote", os.path.lexists(f"{self.remote}/{name}.json"), False)
        expect("listed", f"{name}.json" in os.listdir(self.layouts), False)
        expect("view", os.path.lexists(f"{self.model}/{name}"), False)


def check_closed(t):
    """A layout is there for everybody when close has returned, even where it was just missing."""
    expect("before", errno_of(os.stat, f"{t.model}/closed"), "ENOENT")
    expect("before", errno_of(os.stat, t.at("closed.json")), "ENOENT")
    put(t.at("closed.json"), text("closed"))
    t.is_there("closed", text("closed"))
    expect("mode", os.stat(t.at("closed.json")).st_mode & 0o777, 0o444)
    expect("error", t.why(), "")


def check_renamed(t):
    """A temporary name renamed to the layout's publishes it; until then nothing is published."""
    for i, temporary in enumerate((".a.json.x7", "tmp12", ".hidden.json", "b.json.tmp.1.2.3")):
        name = f"renamed{i}"
        put(t.at(temporary), text(name))
        expect("temporary", content(t.at(temporary)), text(name))
        t.is_not_there(name)
        os.rename(t.at(temporary), t.at(f"{name}.json"))
        t.is_there(name, text(name))
        expect("temporary", os.path.lexists(t.at(temporary)), False)
    put(t.at("again"), text("renamed0"))
    os.replace(t.at("again"), t.at("renamed0.json"))  # the same layout again is no change
    put(t.at("again"), text("other"))
    expect("wrong name", errno_of(os.rename, t.at("again"), t.at("renamed9.json")), "EINVAL")
    expect("reason", "the document's name is \"other\", not \"renamed9\"" in t.why(), True)
    expect("reason of the file", os.getxattr(t.at("again"), "user.mooncake.error").decode(), t.why())
    t.is_not_there("renamed9")
    os.rename(t.at("again"), t.at("other.json"))  # what was refused is still there to be put right
    t.is_there("other", text("other"))


def check_shell(t):
    """Redirections, cp, tee, dd and mv write layouts like any file."""
    source = f"{t.remote}/../../shell"
    for i, command in enumerate(("cat '{0}' > '{1}'", "cp '{0}' '{1}'", "cp -p '{0}' '{1}'",
                                 "tee '{1}' < '{0}' > /dev/null", "dd if='{0}' of='{1}' bs=100 2>/dev/null",
                                 "mv '{0}' '{1}'", "(head -c 50 '{0}'; tail -c +51 '{0}') > '{1}'",
                                 "install -m 644 '{0}' '{1}'")):
        name = f"shell{i}"
        with open(source, "wb") as f:
            f.write(text(name))
        command = command.format(source, t.at(f"{name}.json"))
        expect(command, subprocess.run(["sh", "-c", command], check=False).returncode, 0)
        t.is_there(name, text(name))


def check_whole_or_not(t):
    """While it is written a layout is neither listed nor usable; no second file has the name."""
    fd = os.open(t.at("late.json"), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    data = text("late")
    os.write(fd, data[:40])
    expect("size", os.stat(t.at("late.json")).st_size, 40)
    expect("own bytes", os.pread(fd, 100, 10), data[10:40])
    expect("excl", errno_of(os.open, t.at("late.json"), os.O_WRONLY | os.O_CREAT | os.O_EXCL), "EEXIST")
    expect("listed", "late.json" in os.listdir(t.layouts), False)
    expect("view", errno_of(os.stat, f"{t.model}/late"), "ENOENT")
    os.ftruncate(fd, 1000)
    os.ftruncate(fd, 40)
    os.pwrite(fd, data[40:], 40)
    os.close(fd)
    t.is_there("late", data)


# What is wrong with a document, and what the reason says.
BAD = {
    "no JSON": (b"{\"format\": ", "line 1"),
    "text after it": (text("bad") + b"{}", "end of file"),
    "no layout": (b"{}", "reshard-layout"),
    "another name": (text("good"), "the document's name is \"good\", not \"bad\""),
    "unknown axis": (text("bad", rules=[{"match": "**", "split": [{"axis": "ep", "dim": 0}]}]),
                     "layout /rules/0/split/0: the mesh has no axis \"ep\""),
    "circle of axes": (text("bad", mesh=dict(TP2, derived={"a": {"from": ["b"]}, "b": {"from": ["a"]}})),
                       "/mesh/derived"),
    "rank beyond the mesh": (text("bad", rules=[{"match": "**", "only": {"axis": "tp", "rank": 2}}]),
                             "/rules/0/only/rank"),
    "participants": (text("bad", mesh={"axes": [["a", 300], ["b", 300]]}), "participants"),
    "overflow": (text("bad", mesh={"axes": [["a", 1 << 62], ["b", 1 << 62]]}), "/mesh/axes/0"),
    "explosion of an expression": (text("bad", rules=[{"match": "re:((a{99}){99}){99}", "drop": True}]),
                                   "/rules/0/match"),
    "nested stars": (text("bad", rules=[{"match": "re:" + "(" * 3000 + "a" + ")*" * 3000, "drop": True}]),
                     "/rules/0/match"),
    "a million rules": (b"{\"format\":\"reshard-layout\",\"version\":1,\"name\":\"bad\",\"mesh\":{\"axes\":"
                        b"[[\"tp\",2]]},\"rules\":[" + b",".join([b"{}"] * 1_000_000) + b"]}", "1024"),
    "transpose": (text("bad", rules=[{"match": "**", "transpose": True}]), "not possible"),
    "key twice": (b"{\"format\":1,\"format\":1}", "uplicate"),
    "depth": (b"[" * 100_000, "deeper than"),
    "bytes that are no UTF-8": (b"{\"name\": \"\xff\xfe\"}", "unable to decode byte 0xff"),
}


def check_refused(t):
    """What is wrong is EINVAL at close, with the reason and its place; nothing is registered."""
    wrong = []
    for what, (data, reason) in BAD.items():
        expect(what, errno_of(put, t.at("bad.json"), data), "EINVAL")
        if reason not in t.why() or "bad.json" not in t.why():
            wrong.append(f"{what}: {t.why()!r} does not say {reason!r}")
        t.is_not_there("bad")
        put(t.at("bad.tmp"), data)
        expect(f"{what}, renamed", errno_of(os.rename, t.at("bad.tmp"), t.at("bad.json")), "EINVAL")
        t.is_not_there("bad")
        os.unlink(t.at("bad.tmp"))
    for name in ("tp8", "@", "a@b", "x" * 251):
        expect(name, errno_of(put, t.at(f"{name}.json"), text(name)),
               "ENAMETOOLONG" if len(name) > 250 else "EINVAL")
    put(t.at("bad.json"), b"")  # nothing was written, so nothing can be wrong; but nor is it there
    t.is_not_there("bad")
    expect("reasons", wrong, [])
    while b"no axis \"ep\"" not in content(f"{t.remote}/../../log"):  # a line a second
        errno_of(put, t.at("bad.json"), BAD["unknown axis"][0])


def check_too_large(t):
    """A document has at most 4 MiB."""
    spaces = b" " * ((4 << 20) - len(text("large")))
    expect("beyond", errno_of(put, t.at("large.json"), text("large") + spaces + b" "), "EFBIG")
    expect("reason", "4 MiB" in t.why(), True)
    t.is_not_there("large")
    put(t.at("large.json"), text("large") + spaces)
    t.is_there("large", text("large") + spaces)


def check_never_changes(t):
    """A registered layout is neither written nor renamed; the name is taken."""
    data, path = content(t.at("closed.json")), t.at("closed.json")
    expect("write", errno_of(os.open, path, os.O_WRONLY), "EPERM")
    expect("truncate", errno_of(os.open, path, os.O_WRONLY | os.O_TRUNC), "EPERM")
    expect("reason", "never changes" in t.why(), True)
    expect("by name", errno_of(os.truncate, path, 0), "EPERM")
    expect("rename", errno_of(os.rename, path, t.at("moved.json")), "EINVAL")
    put(t.at("tmp"), text("closed", rules=[{"match": "**", "drop": True}]))
    expect("other content", errno_of(os.rename, t.at("tmp"), path), "EEXIST")
    os.unlink(t.at("tmp"))
    put(t.at("tmp"), b"\n" + data)
    os.rename(t.at("tmp"), path)  # white space is no difference
    t.is_there("closed", data)
    for call, *args in ((os.mkdir, t.at("d")), (os.symlink, "x", t.at("s")), (os.mknod, t.at("n")),
                        (os.link, path, t.at("l"))):
        expect(call.__name__, errno_of(call, *args), "EPERM")
    expect("out", errno_of(os.rename, path, f"{t.layouts}/../closed.json"), "EXDEV")


def check_temporary(t):
    """Forgotten temporary files are bounded: the oldest goes."""
    for i in range(40):
        put(t.at(f".t{i}"), b"x" * 100)
    expect("left", [i for i in range(40) if os.path.exists(t.at(f".t{i}"))], list(range(24, 40)))
    fds = [os.open(t.at(f".o{i}"), os.O_WRONLY | os.O_CREAT, 0o644) for i in range(16)]
    expect("one more", errno_of(os.open, t.at(".o16"), os.O_WRONLY | os.O_CREAT), "ENOSPC")
    for i, fd in enumerate(fds):
        os.close(fd)
        os.unlink(t.at(f".o{i}"))


def check_others(t):
    """Only the daemon's user writes layouts."""
    folder = os.open(t.layouts, os.O_RDONLY)
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        got = [errno_of(lambda: os.open("mine.json", os.O_WRONLY | os.O_CREAT, dir_fd=folder)),
               errno_of(lambda: os.unlink("closed.json", dir_fd=folder)),
               errno_of(lambda: os.open("closed.json", os.O_RDONLY, dir_fd=folder))]
        os._exit(got != ["EACCES", "EACCES", "no error"])
    expect("another user", os.waitpid(pid, 0)[1], 0)
    os.close(folder)


def check_outage(t):
    """While the remote cannot take it close fails, and says why; nothing is half there afterwards."""
    fd = os.open(t.at("outage.json"), os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, text("outage"))
    os.rename(t.remote, t.remote + ".away")
    with open(t.remote, "w", encoding="utf-8"):
        pass  # no directory
    try:
        expect("close", errno_of(os.close, fd) in ("no error", "EINVAL"), False)
        expect("reason", t.why().startswith("outage.json: "), True)
    finally:
        os.unlink(t.remote)
        os.rename(t.remote + ".away", t.remote)
    t.is_not_there("outage")
    put(t.at("outage.json"), text("outage"))
    t.is_there("outage", text("outage"))


def check_killed(t):
    """A writer that dies in the middle leaves nothing."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        fd = os.open(t.at("killed.json"), os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(fd, text("killed")[:-1])
        os.write(w, b"x")
        signal.pause()
    os.read(r, 1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    t.is_not_there("killed")


# A layout that is right by itself and does not fit the model, and what the reason says.
MISFITS = {
    "config-key": ({"params": {"n": "config:no.such.key"},
                    "rules": [{"match": "**", "split": [{"axis": "tp", "dim": 0, "units": "n"}]}]},
                   ["no.such.key"]),
    "no-rule": ({"rules": [{"match": "model.norm.weight", "replicate": True}]}, ["no rule"]),
    "unused-rule": ({"rules": [{"match": "nothing", "drop": True}] + ROWS}, ["/rules/0", "nothing"]),
    "not-divisible": ({"mesh": {"axes": [["tp", 7]]},
                       "rules": [{"match": "**embed_tokens.weight", "split": [{"axis": "tp", "dim": 0}]}] +
                       ROWS}, ["model.embed_tokens.weight", "dimension 0"]),
    "no-dimension": ({"rules": [{"match": "**norm.weight", "split": [{"axis": "tp", "dim": 1}]}] + ROWS},
                     ["norm.weight", "dimension 1"]),
}


def check_misfits(t):
    """A layout that does not fit a model is EINVAL there, with the reason; nothing of it is served."""
    for name, (changes, reasons) in MISFITS.items():
        put(t.at(f"{name}.json"), text(name, **changes))
        for path in (name, f"{name}/rank-00000", f"{name}/rank-00000/model.safetensors"):
            expect(path, errno_of(os.stat, f"{t.model}/{path}"), "EINVAL")
        why = os.getxattr(t.model, "user.mooncake.error").decode()
        missing = [r for r in reasons + [name] if r not in why]
        expect(f"{name}: {why}: what it does not say", missing, [])
        os.unlink(t.at(f"{name}.json"))


def check_removed(t):
    """unlink removes a layout; its name is free; open files of its views stay."""
    path = f"{t.model}/closed/rank-00001/model.safetensors"
    data = content(path)
    with open(path, "rb", buffering=0) as f:
        f.read(100)
        os.unlink(t.at("closed.json"))
        # The kernel remembers names for two seconds.
        until("the name is gone", lambda: not os.path.lexists(f"{t.model}/closed"))
        t.is_not_there("closed")
        expect("open file", os.pread(f.fileno(), len(data), 0), data)
    expect("again", errno_of(os.unlink, t.at("closed.json")), "ENOENT")
    expect("no layout", errno_of(os.unlink, t.at("closed")), "ENOENT")
    put(t.at("closed.json"), text("closed", mesh={"axes": [["tp", 1]]}))
    expect("new content", os.listdir(f"{t.model}/closed"), ["rank-00000"])


def check_after_restart(t):
    """Layouts stay, drafts do not."""
    expect("layout", os.listdir(f"{t.model}/closed"), ["rank-00000"])
    expect("draft", os.path.exists(t.at(".t39")), False)


if __name__ == "__main__":
    globals()[f"check_{sys.argv[1]}"](Tree(*sys.argv[2:]))
