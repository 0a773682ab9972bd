"""The driver within a sandbox, init of its namespace: forks a child for each piece of code, then kills all there is.

Not imported: `envs.enterprise.bubblewrap` gives its text to ``python -c``. On standard input come a length and the code,
on descriptor `CONTROL` goes the child's wait status; a length of zero stops what runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import struct
import sys
import types
from typing import Any

PR_SET_DUMPABLE = 4
CONTROL = 3


def serve() -> bytes:
    """Returns in each child, with its code."""
    os.write(CONTROL, b"r")
    while True:
        code = taken(struct.unpack("<I", taken(4))[0])
        if not code:  # a stop that came too late
            continue
        child = os.fork()
        if not child:
            return code
        handle = os.pidfd_open(child)
        if 0 in select.select([0, handle], [], [])[0]:
            taken(4)
        os.close(handle)
        os.write(CONTROL, struct.pack("<I", cleared(child)))


def taken(size: int) -> bytes:
    """So many bytes of standard input; the end of the process where it ends."""
    got = b""
    while len(got) < size:
        more = os.read(0, size - len(got))
        if not more:
            os._exit(0)
        got += more
    return got


def cleared(child: int) -> int:
    """Kills every other process of the namespace, daemons included. Returns the child's wait status."""
    status = 0
    while True:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        try:
            pid, ended = os.waitpid(-1, 0)
        except ChildProcessError:
            return status
        status = ended if pid == child else status


def shown(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Prints an error without this file's frames."""
    while trace is not None and trace.tb_frame.f_code.co_filename != "<code>":
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), None)


def main() -> None:
    control, seconds, memory, disk, processes = map(int, sys.argv[1:])
    sys.argv = [""]
    if control != CONTROL:
        os.dup2(control, CONTROL)
    os.closerange(CONTROL + 1, 2**16)
    prctl = ctypes.CDLL(None).prctl
    # the code may not look into this process nor take its descriptors
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    most = {"CORE": 0, "MEMLOCK": 0, "MSGQUEUE": 0, "NOFILE": 64}
    most |= {"AS": memory << 20, "FSIZE": disk << 20, "NPROC": processes}
    for name, value in most.items():
        if value >= 0:
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    code = serve()
    os.setsid()
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.closerange(CONTROL, 2**16)
    os.set_blocking(1, True)  # an earlier script may have changed it
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    sys.excepthook = shown
    script = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(code, "<code>", "exec"), script.__dict__)


if __name__ == "__main__":
    main()
