"""Runs `python -m conductor` without what Linux adds: `/proc`, pidfd, waitid, prctl, epoll.

What macOS lacks is taken away; the kernel below is still Linux's, and what macOS does otherwise is
not shown by this.
"""

import builtins
import fcntl
import os
import runpy
import select
import sys

import psutil  # it chooses by the platform how it reads processes, here by /proc
import trio  # it chooses its own event loop by what there is

assert trio
assert psutil
os.environ["ACP_CONDUCTOR_EPOLL"] = "off"
for module, name in (
    (os, "pidfd_open"),
    (os, "waitid"),
    (os, "P_PID"),
    (os, "WNOWAIT"),
    (fcntl, "F_SETPIPE_SZ"),
    (select, "POLLRDHUP"),
):
    delattr(module, name)


def without_proc(function):
    def refuse(path, *arguments, **options):
        caller = sys._getframe(1).f_globals["__name__"]
        if str(path).startswith("/proc") and not caller.startswith("psutil"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return function(path, *arguments, **options)

    return refuse


os.listdir = without_proc(os.listdir)
os.readlink = without_proc(os.readlink)
builtins.open = without_proc(builtins.open)
sys.platform = "darwin"
runpy.run_module("conductor", run_name="__main__", alter_sys=True)
