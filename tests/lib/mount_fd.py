"""Mounts /dev/fuse itself and has the program serve the descriptor: PROGRAM MOUNTPOINT OPTION..."""
import ctypes
import os
import subprocess
import sys

program, where, *options = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open("/dev/fuse", os.O_RDWR)
data = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
if libc.mount(b"mooncake", where.encode(), b"fuse.mooncakefs", 6, data.encode()) != 0:
    sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
daemon = subprocess.Popen([program, "mount", "-f", f"/dev/fd/{fd}", *options], pass_fds=[fd],
                          stderr=subprocess.PIPE, text=True)
os.close(fd)
for line in daemon.stderr:
    if "event=mounted" in line:
        break
else:
    sys.exit(f"not served: {daemon.wait()}")
text = open(f"{where}/checkpoints/o/m/file", encoding="ascii").read()
if text != "hello\n":
    sys.exit(f"the file holds {text!r}")
if libc.umount2(where.encode(), 0) != 0:
    sys.exit(f"umount: {os.strerror(ctypes.get_errno())}")
print(daemon.stderr.read(), end="")
sys.exit(daemon.wait())
