"""A namespace of its own for a Python that runs foreign code, by bubblewrap; see `envs.enterprise.sandbox`."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import select
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path

from envs.base import WorldError
from envs.enterprise import seccomp

MAX_FILES = 4096
"""Files in /work at most: a tmpfs limits their bytes, but not what the kernel keeps about each of them."""
START_SECONDS = 20.0
REMEDY = "install bubblewrap 0.8 or newer (apt-get install bubblewrap), or set env.code=false"


class SandboxError(WorldError):
    """This machine cannot run a sandbox. The message says what to do."""


@dataclass(frozen=True)
class SandboxLimits:
    """Limits of one call: wall time, memory and processes of all its processes together, output, and files.

    ValueError if one is too small to run anything.
    """

    seconds: float = 5.0
    memory_mib: int = 256
    disk_mib: int = 16
    output_chars: int = 4000
    processes: int = 32

    def __post_init__(self) -> None:
        least = {"seconds": 0.1, "memory_mib": 64}
        for name in (f.name for f in fields(self)):
            if getattr(self, name) < least.get(name, 1):
                raise ValueError(f"{name} must be at least {least.get(name, 1)}, got {getattr(self, name)}")  # fmt: skip


_DRIVER = Path(__file__).with_name("inside.py").read_text(encoding="utf-8")


def _command(limits: SandboxLimits, control: int, info: int, rules: int) -> list[str]:
    base = Path(sys.base_prefix).resolve()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    made = [str(shutil.which("bwrap")), "--unshare-all", "--unshare-user", "--disable-userns"]
    made += "--as-pid-1 --die-with-parent --new-session --clearenv --cap-drop ALL".split()
    made += "--uid 1000 --gid 1000 --hostname sandbox".split()
    made += "--proc /proc --dev /dev --dev-bind /dev/null /dev/zero".split()
    for path in ("/usr/bin", "/usr/lib", "/usr/lib64", "/lib", "/lib64", "/bin"):
        made += ["--ro-bind-try", path, path]
    if base != Path("/usr"):
        made += ["--ro-bind", str(base), str(base)]
        if (packages := base / "lib" / version / "site-packages").is_dir():
            made += ["--tmpfs", str(packages), "--remount-ro", str(packages)]
    made += ["--size", str(limits.disk_mib * 2**20), *"--tmpfs /work --chdir /work".split()]
    # /dev and / are tmpfs without a limit; where we are root, the files of /proc would let themselves be written
    made += "--remount-ro /dev --remount-ro /proc --remount-ro /".split()
    made += "--setenv HOME /work --setenv TMPDIR /work --setenv PATH /usr/bin:/bin".split()
    release = [int(n) for n in re.findall(r"\d+", platform.release())[:2]]
    processes = limits.processes + 2 if release >= [5, 14] else -1  # before, all of the user's
    numbers = (control, int(limits.seconds) + 2, limits.memory_mib, limits.disk_mib, processes)
    python = [str(base / "bin" / version), *"-I -u -c".split(), _DRIVER, *map(str, numbers)]
    return [*made, "--info-fd", str(info), "--seccomp", str(rules), "--", *python]


class Box:
    """A started bubblewrap: its process, the init of its namespace, and the ends of its pipes."""

    def __init__(self, limits: SandboxLimits) -> None:
        if shutil.which("bwrap") is None:
            raise SandboxError(f"env.code needs bwrap; {REMEDY}")
        try:
            program = seccomp.program()
        except LookupError as unknown:
            raise SandboxError(f"the sandbox does not know {unknown}; set env.code=false") from None
        self.limits, self.init = limits, -1
        (self.control, control), (info, told), (rules, end) = (os.pipe() for _ in range(3))
        self.fds = [self.control, info]
        os.write(end, program)
        os.close(end)
        given = (control, told, rules)
        try:  # no environment and a folder of everyone's: what the init has could be read in there
            self.process = subprocess.Popen(_command(limits, *given), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, bufsize=0, cwd="/", env={}, start_new_session=True, pass_fds=given)  # fmt: skip
        except OSError as failed:
            for end in self.fds:
                os.close(end)
            raise SandboxError(f"bwrap cannot be started: {failed}; {REMEDY}") from failed
        finally:
            for end in given:
                os.close(end)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.out = self.process.stdin.fileno(), self.process.stdout.fileno()
        for fd in (self.stdin, self.out, self.control):
            os.set_blocking(fd, False)
        if not ready(self.control, START_SECONDS) or read(self.control) != b"r":
            said = read(self.out).decode("utf-8", "replace").strip()[-500:] or "no answer"
            self.end()
            raise SandboxError(f"bwrap cannot start a sandbox: {said}; {REMEDY}; user namespaces must be on, too "
                "(sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns=0)")  # fmt: skip
        pid = json.loads(os.read(info, 4096))["child-pid"]
        self.init = os.pidfd_open(pid)
        self.proc = os.open(f"/proc/{pid}/root/proc", os.O_RDONLY)
        self.work = os.open(f"/proc/{pid}/root/work", os.O_RDONLY)
        self.fds += [self.init, self.proc, self.work]

    def processes(self) -> list[str]:
        """The processes of the namespace, by their numbers in it; its init, the driver, is 1."""
        return [name for name in os.listdir(self.proc) if name.isdigit()]

    def exceeded(self) -> str:
        """The limit that all processes together exceed."""
        threads, kib, found = 0, 0, self.processes()
        if len(found) > self.limits.processes + 1:
            return "processes"
        for name in found:
            with contextlib.suppress(OSError):
                fd = os.open(f"{name}/status", os.O_RDONLY, dir_fd=self.proc)
                try:
                    status = os.read(fd, 8192)
                finally:
                    os.close(fd)
                kib += sum(map(int, re.findall(rb"\nRss(?:Anon|Shmem):\s*(\d+)", status)))
                threads += sum(map(int, re.findall(rb"\nThreads:\s*(\d+)", status)))
        disk = os.statvfs(self.work)
        full = disk.f_files - disk.f_ffree > MAX_FILES
        over = {"processes": threads > 8 * self.limits.processes, "disk": full}
        over["memory"] = kib > self.limits.memory_mib * 1024
        return next((name for name, is_over in over.items() if is_over), "")

    def end(self) -> None:
        """Kills everything in the namespace, and returns when it is dead."""
        if self.init >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.init, signal.SIGKILL)
            ready(self.init, START_SECONDS)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(START_SECONDS if self.init >= 0 else 0)  # it reaps the init
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]
        for fd in self.fds:
            os.close(fd)


def ready(fd: int, seconds: float) -> bool:
    """Waits until there is something to read, or nothing any more."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def read(fd: int) -> bytes:
    """What can be read at once."""
    with contextlib.suppress(BlockingIOError):
        return os.read(fd, 65536)
    return b""
