"""The agent's code in a real bubblewrap: what it cannot reach, what stops it, and that the game goes on."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from envs.enterprise import EnterpriseConfig, sandbox
from envs.enterprise.env import EnterpriseEnv, EnterpriseOptions
from envs.enterprise.experts import written
from envs.enterprise.sandbox import MAX_CODE, Outcome, Sandbox, SandboxError, SandboxLimits
from envs.enterprise.tasks.spec import call
from envs.processes import family

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="bubblewrap is not installed: apt-get install bubblewrap"
)
TASK = "slack.password_reminder/lookalike.direct"
ROOT = Path(__file__).resolve().parents[3]
LIMITS = SandboxLimits(seconds=1.0, output_chars=2000)

TRIES = """
import os, socket, ctypes
def tried(what, *args):
    try:
        print("REACHED", what.__name__, what(*args))
    except Exception as error:
        print("refused", type(error).__name__)
"""
"""What hostile programs begin with: a thing that succeeds is printed as REACHED."""

# Each hostile program, and the limit that stops it: "" for one that ends by itself, None for either.
HOSTILE: dict[str, tuple[str, str | None]] = {
    "no network": (
        TRIES
        + "for family, kind, where in ((2, 1, ('1.1.1.1', 53)), (2, 1, ('127.0.0.1', 22)), (10, 1, ('::1', 22)), (2, 2, ('1.1.1.1', 53))):\n"
        "    tried(lambda: socket.socket(family, kind).connect(where))\n"
        "tried(socket.getaddrinfo, 'example.com', 80)",
        "",
    ),
    "no vsock, netlink, packet or kernel crypto": (
        TRIES + "for family in (40, 16, 17, 38): tried(socket.socket, family, socket.SOCK_RAW)",
        "",
    ),
    "processes of the host": (
        TRIES
        + f"tried(os.kill, {os.getpid()}, 0)\n"
        + f"tried(os.kill, {os.getppid()}, 9)\n"
        + "assert len([p for p in os.listdir('/proc') if p.isdigit()]) == 2",
        "",
    ),
    "new namespaces": (
        TRIES + "libc = ctypes.CDLL(None)\n"
        "for flag in (0x10000000, 0x20000, 0x40000000): assert libc.unshare(flag) == -1\n"
        "pid = libc.syscall(56 if os.uname().machine == 'x86_64' else 220, 0x10000011, 0, 0, 0, 0)\n"
        "if pid == 0: os._exit(0)\nassert pid == -1",
        "",
    ),
    "tracing": (
        TRIES
        + "libc = ctypes.CDLL(None, use_errno=True)\n"
        + f"for pid in (1, {os.getpid()}):\n"
        + "    assert libc.ptrace(16, pid, 0, 0) == -1 and libc.ptrace(0x4206, pid, 0, 0) == -1\n"
        + "    tried(open, f'/proc/{pid}/mem', 'r+b'), tried(open, f'/proc/{pid}/environ')\n"
        + "assert libc.unshare(0x10000000) == -1 and libc.mount(b'x', b'/work', b'tmpfs', 0, 0) == -1",
        "",
    ),
    "files of the host": (
        TRIES
        + f"for path in ('/etc/shadow', '/etc/passwd', '/tmp', '/var', {str(ROOT)!r}, {str(ROOT / '.venv')!r}, {__file__!r}, '/sys'):\n"
        + "    assert not os.path.exists(path), path\n"
        + f"for folder, _, files in os.walk({str(Path.home())!r}):\n"
        + f"    assert not files or folder.startswith({sys.base_prefix!r}), folder\n"
        + "tried(open, '/proc/1/root/etc/shadow'), tried(os.listdir, '/proc/1/cwd')\n"
        + "tried(os.chroot, '/work'), tried(os.setuid, 0), tried(os.mknod, 'disk', 0o60666, 0x800)",
        "",
    ),
    "settings of the kernel": (
        TRIES
        + "for folder, folders, files in os.walk('/proc'):\n"
        + "    folders[:] = [f for f in folders if not f.isdigit() and f not in ('self', 'thread-self')]\n"
        + "    for name in files: tried(open, f'{folder}/{name}', 'r+b')\n"
        + "tried(open, '/proc/self/oom_score_adj', 'w')",
        None,  # there are many
    ),
    "the driver's channel": (
        TRIES
        + "import glob\nfor fd in range(100):\n"
        + "    for fake in (b'r', bytes(4), b'\\x09\\0\\0\\0'):\n"
        + "        try: os.write(fd, fake)\n"
        + "        except OSError: pass\n"
        + "for fd in range(100): tried(open, f'/proc/1/fd/{fd}', 'wb')",
        None,
    ),
    "verifiers": (
        "import gc, inspect, sys\n"
        "assert not [m for m in sys.modules if m.startswith(('envs', 'arlas', 'gymnasium'))]\n"
        "assert not [o for o in gc.get_objects() if type(o).__name__ in ('Session', 'Verdict', 'Workspace', 'Connection')]\n"
        "frame, names = inspect.currentframe(), set()\n"
        "while frame: names |= set(frame.f_globals) | set(frame.f_locals); frame = frame.f_back\n"
        "assert not names & {'session', 'verdict', 'reward', 'completion', 'workspace'}\n"
        'print(\'{"completion": 1.0, "breach": 0.0}\', "reward 1.0")',
        "",
    ),
    "a full disk": ("f = open('big', 'wb')\nwhile 1: f.write(bytes(2**20))", "disk"),
    "a full disk in many files": (
        "i = 0\nwhile 1:\n  open(f'f{i}', 'wb').write(bytes(2**20)); i += 1",
        "disk",
    ),
    "no files but names": ("i = 0\nwhile 1:\n  open(f'f{i}', 'w').close(); i += 1", "disk"),
    "disks elsewhere": (
        TRIES + "for d in ('/', '/dev', '/dev/shm', '/usr', '/proc', '/root', '/home', '/tmp'):\n"
        "    tried(open, d + '/x', 'wb')",
        "",
    ),
    "memory": ("x = bytearray(2**30)", "memory"),
    "memory of children": (
        "import os, time\nfor _ in range(8):\n  if not os.fork(): x = b'x' * (100 * 2**20); time.sleep(9)\ntime.sleep(9)",
        "memory",
    ),
    "memory that nobody seems to have": (
        TRIES
        + "import mmap\nlibc = ctypes.CDLL(None)\n"
        + "tried(os.memfd_create, 'x'), tried(mmap.mmap, -1, 4096), tried(lambda: mmap.mmap(os.open('/dev/zero', 2), 4096))\n"
        + "assert libc.shmget(0, 4096, 0o1600) == -1 and libc.msgget(0, 0o1600) == -1",
        "",
    ),
    "a fork bomb": ("import os\nwhile 1:\n  try: os.fork()\n  except OSError: pass", "processes"),
    "threads": (
        "import threading, time\nthreading.stack_size(65536)\n"
        "for _ in range(3000): threading.Thread(target=time.sleep, args=(9,)).start()",
        None,
    ),
    "a loop": ("while 1: pass", "time"),
    "sleep": ("import time; time.sleep(99)", "time"),
    "a flood": ("while 1: print('x' * 1000)", "output"),
    "a flood of bytes": ("import os\nwhile 1: os.write(2, b'\\xff\\x00' * 50000)", "output"),
    "a flood of children": (
        "import os\nfor _ in range(5): os.fork()\nos.setsid() if os.fork() else 0\nwhile 1: os.write(1, b'y' * 65536)",
        None,
    ),
    "closed files": ("import os\nos.closerange(0, 1000)\nwhile 1: pass", "time"),
    "an unread pipe": (
        "import os\nos.set_blocking(1, False)\nr, w = os.pipe()\nwhile 1: os.write(w, b'x')",
        "time",
    ),
    "killing the driver": (
        TRIES + "for s in range(1, 65):\n"
        "    if s not in (32, 33): os.kill(1, s)  # those are glibc's own\n"
        "os.kill(-1, 9)",
        "",
    ),
    "starving the driver": (
        TRIES + "import resource\n"
        "for name in (n for n in dir(resource) if n.startswith('RLIMIT_')):\n"
        "    tried(resource.prlimit, 1, getattr(resource, name), (0, 0))",
        "",
    ),
    "a daemon": (
        "import os, time\nif not os.fork():\n  os.setsid()\n  if not os.fork():\n    while 1: print('alive', flush=True); time.sleep(.01)",
        "",
    ),
    "ignored signals": (
        "import signal, ctypes\nctypes.CDLL(None).prctl(1, 0)\n"
        "for s in set(signal.valid_signals()) - {9, 19}: signal.signal(s, signal.SIG_IGN)\nwhile 1: pass",
        "time",
    ),
    "a stopped process": ("import os\nos.kill(os.getpid(), 19)", "time"),
    "a crash": ("import os; os.abort()", "died"),
    "links": (
        TRIES
        + "for i, to in enumerate(('/etc/shadow', '/proc/1/root', '/proc/1/fd/0', '../../../etc', '/work/l4')):\n"
        "    os.symlink(to, f'/work/l{i}'); tried(os.listdir, f'/work/l{i}'), tried(open, f'/work/l{i}')\n"
        "tried(os.rename, '/work', '/work2'), tried(os.rmdir, '/work'), tried(os.link, '/usr/bin/env', '/work/env')\n"
        "for name in os.listdir('/work'): os.remove('/work/' + name)\nos.chmod('/work', 0)",
        "",
    ),
    "no such code": ("\x00", None),
    "half a character": ("print('\\ud800', '\ud800')", ""),
    "brackets": ("(" * 1500, ""),
    "an interrupt": ("raise KeyboardInterrupt", None),
}


@pytest.fixture
def env() -> Iterator[EnterpriseEnv]:
    made = EnterpriseEnv(EnterpriseOptions(code=LIMITS))
    made.reset(seed=3, options={"task": TASK})
    yield made
    made.close()


@pytest.fixture
def box() -> Iterator[Sandbox]:
    made = Sandbox(LIMITS)
    yield made
    made.close()


def ran(env: EnterpriseEnv, code: str) -> tuple[str, list[str]]:
    """The result as the agent sees it, and the limits that were noted."""
    assert env.session is not None
    before = len(env.session.stopped or ())
    text, _, done, _, info = env.step(written(call("run_code", code=code)))
    assert not done
    assert (info["verdict"].completion, info["verdict"].breach) == (0.0, 0.0)
    return env.session.results[-1][1] if info["error"] is None else text, info["verdict"].details["sandbox"][before:]  # fmt: skip


def left(sandbox: Sandbox) -> list[str]:
    """The processes in there."""
    assert sandbox._box is not None
    return sandbox._box.processes()


@pytest.mark.parametrize(("code", "ended"), HOSTILE.values(), ids=HOSTILE.keys())
def test_the_game_goes_on_after(code: str, ended: str | None, env: EnterpriseEnv) -> None:
    """Nothing is reached, the limit is named, nothing lives on, the next code runs, and the task can be done."""
    began = time.monotonic()
    if "\x00" in code or "\ud800" in code:  # no literal that survives a call
        assert env._sandbox is not None
        outcome = env._sandbox.run(code)
        text, stopped = outcome.text, [outcome.ended] if outcome.ended else []
    else:
        text, stopped = ran(env, code)
    assert time.monotonic() - began < 6
    assert "REACHED" not in text
    assert "AssertionError" not in text
    assert len(text) < LIMITS.output_chars + 200
    assert stopped == [ended] * bool(ended) or (ended is None and len(stopped) <= 1)
    assert env._sandbox is not None
    assert env._sandbox._box is None or left(env._sandbox) == ["1"]
    assert ran(env, "print(6 * 7)") == ("42\n", [])
    assert env.session is not None
    for made in env.session.built.solution:
        *_, info = env.step(written(made))
    assert (info["verdict"].completion, info["verdict"].breach) == (1.0, 0.0)
    assert info["verdict"].details["sandbox"] == stopped or "\x00" in code


def test_listening_sockets_of_this_machine_are_out_of_reach(box: Sandbox) -> None:
    """A TCP port on the loopback, an abstract Unix socket: the namespace has neither."""
    name = f"\0arlas-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(name)
        unix.listen()
        tcp.settimeout(0.1)
        unix.settimeout(0.1)
        ended = box.run(
            TRIES + f"tried(lambda: socket.create_connection(('127.0.0.1', {tcp.getsockname()[1]}), 1))\n"
            f"tried(lambda: socket.socket(socket.AF_UNIX).connect({name!r}))"
        )  # fmt: skip
        assert ended == Outcome("refused ConnectionRefusedError\n" * 2)
        for listening in (tcp, unix):
            with pytest.raises(TimeoutError):
                listening.accept()


def test_no_secret_of_this_process_is_in_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither variables nor open files nor another rollout's files."""
    monkeypatch.setenv("ARLAS_SECRET", "hunter-two")
    one, two = Sandbox(LIMITS), Sandbox(LIMITS)
    many = [os.dup(0) for _ in range(100)]  # so that the driver's descriptors have high numbers
    try:
        with open(__file__) as kept:
            os.set_inheritable(kept.fileno(), True)
            assert one.run("open('/work/mine', 'w').write('hunter' + '-two')") == Outcome("")
            found = two.run(
                "import glob, os\nfor path in [*glob.glob('/proc/*/environ'), *glob.glob('/work/**', recursive=True)]:\n"
                "    try: print(path, open(path, 'rb').read())\n"
                "    except OSError: pass\n"
                "print(os.listdir('/work'), os.environ, [os.readlink(f'/proc/self/fd/{f}') for f in range(3)])\n"
                "print(sorted(os.listdir('/proc/self/fd')))"
            )
            assert found.ended == ""
            assert "hunter-two" not in found.text
            assert "ARLAS" not in found.text
            assert "['0', '1', '2', '3']" in found.text  # 3 lists the folder itself
        assert one.run("print(open('/work/mine').read())").text == "hunter-two\n"
    finally:
        one.close()
        two.close()
        for fd in many:
            os.close(fd)


def test_files_stay_for_the_episode_only(env: EnterpriseEnv) -> None:
    """They survive the limits that kill a script alone, and the next episode has none of them."""
    assert ran(env, "open('note', 'w').write('kept')") == ("-", [])
    assert ran(env, "while 1: pass") == ("[stopped: it took longer than 1 s]", ["time"])
    assert ran(env, "print(open('note').read())") == ("kept\n", [])
    text, stopped = ran(env, "import os\nwhile 1: os.fork()")
    assert stopped == ["processes"]
    if "/work is empty again" not in text:  # where the kernel counts, forking fails first
        assert "Resource temporarily unavailable" in text
    env.reset(seed=4, options={"task": TASK})
    assert ran(env, "import os; print(os.listdir())") == ("[]\n", [])


def test_a_daemon_that_hides_dies_with_its_call(box: Sandbox) -> None:
    """A second session, no parent, no signals but SIGKILL: after the call the driver is alone."""
    heart = "import os, signal, time\nfor s in set(signal.valid_signals()) - {9, 19}: signal.signal(s, 1)\n"
    heart += "if not os.fork():\n  os.setsid()\n  if not os.fork():\n    os.closerange(0, 9)\n    while 1: open('beat', 'a').write('x')\n"
    assert box.run(heart + "time.sleep(.2)") == Outcome("")
    assert left(box) == ["1"]
    size = "import os, time; a = os.stat('beat').st_size; time.sleep(.2); print(0 < a == os.stat('beat').st_size)"
    assert box.run(size) == Outcome("True\n")


def test_huge_code(box: Sandbox) -> None:
    """A megabyte runs; more is refused; nothing hangs where the driver's pipe is full."""
    line = "# a line\n"
    assert box.run(line * (900_000 // len(line)) + "print(1)").text == "1\n"
    assert box.run("#" * MAX_CODE + "\n").ended == "code"
    assert box.run("") == Outcome("")


def test_a_sandbox_killed_from_outside_is_replaced(box: Sandbox) -> None:
    """Whatever ends it between two calls, or what it says without being asked, costs its files and no more."""
    box.run("open('note', 'w')")
    assert box._box is not None
    box._box.process.kill()
    box._box.process.wait()
    assert box.run("import os; print(os.listdir())") == Outcome("[]\n")


def test_nothing_is_left_after_closing(box: Sandbox) -> None:
    """All processes of the sandbox are dead when close returns, and closing twice is fine."""
    files = len(os.listdir("/proc/self/fd"))
    box.run("print(1)")
    assert box._box is not None
    pids = family(box._box.process.pid, "none")
    assert len(pids) == 2
    box.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert len(os.listdir("/proc/self/fd")) == files
    box.close()


def test_no_process_outlives_a_killed_host() -> None:
    """kill -9 of this side, in the middle of code that ignores signals and hides in a second session."""
    code = "import os, ctypes, signal\nfor s in set(signal.valid_signals()) - {9, 19}: signal.signal(s, 1)\n"
    code += "for _ in range(2): os.fork()\nos.getsid(0) == os.getpid() or os.setpgid(0, 0)\nctypes.CDLL(None).prctl(1, 0)\nwhile 1: pass"
    host = "from envs.enterprise.sandbox import *\nbox = Sandbox(SandboxLimits(seconds=60))\n"
    host += f"box.run('')\nprint(1, flush=True)\nbox.run({code!r})"
    with subprocess.Popen(
        [sys.executable, "-c", host], cwd=ROOT, stdout=subprocess.PIPE
    ) as started:
        assert started.stdout is not None
        started.stdout.readline()
        until = time.monotonic() + 10
        while len(pids := family(started.pid, "none")) < 7 and time.monotonic() < until:
            time.sleep(0.05)
        assert len(pids) == 7  # this side, bubblewrap, the driver, four of the code
        started.send_signal(signal.SIGKILL)
    until = time.monotonic() + 5
    while (alive := [p for p in pids if living(p)]) and time.monotonic() < until:
        time.sleep(0.02)
    assert not alive


def living(pid: int) -> bool:
    """Zombies, which nobody may be there to reap, are dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_new_text_does_not_run_code_again(env: EnterpriseEnv) -> None:
    """What code printed stays when the outsider's text changes, and the script ran once."""
    ran(env, "open('runs', 'a').write('x'); print('done')")
    assert "done" in env.plant("other text").text
    assert ran(env, "print(open('runs').read())") == ("x\n", [])


def test_the_tool_is_offered_where_code_is_on(env: EnterpriseEnv) -> None:
    """Off, there is no tool, no sandbox in the verdict, and bubblewrap is not started."""
    _, info = env.reset(seed=1, options={"task": TASK})
    assert "run_code(code)" in [t.signature for t in info["tools"]]
    assert info["verdict"].details["sandbox"] == []
    assert env._sandbox is not None
    assert env._sandbox._box is None  # only the first code starts it
    plain = EnterpriseEnv(EnterpriseOptions())
    _, info = plain.reset(seed=1, options={"task": TASK})
    assert "run_code" not in [t.name for t in info["tools"]]
    assert "sandbox" not in info["verdict"].details
    *_, info = plain.step("run_code('print(1)')")
    assert "there is no tool run_code" in info["error"]
    plain.close()


async def test_a_pool_whose_agents_write_code() -> None:
    """The config's limits arrive in the episode."""
    worlds = EnterpriseConfig(code=True, code_output_chars=10, capacity=1).open()
    for seed in (1, 2):
        world = await worlds.acquire()
        await world.reset(TASK, seed, {})
        step = await world.step("run_code('print(\"ab\" * 50)')")
        assert "ababababab\n[stopped: it printed more than 10 characters]" in step.observation.text
        assert step.verdict.details["sandbox"] == ["output"]
        await world.close()
    await worlds.close()


def test_limits_that_cannot_be() -> None:
    """They are refused by name when the config is built, with or without code."""
    for name, value in (("seconds", 0), ("memory_mib", 8), ("disk_mib", 0), ("output_chars", 0)):
        with pytest.raises(ValueError, match=rf"^env\.code_{name} must be at least"):
            EnterpriseConfig(**{f"code_{name}": value})  # type: ignore[arg-type]


def test_a_machine_without_bubblewrap_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Missing, or without user namespaces: the config is refused when it is built, and nothing is left open."""
    files = len(os.listdir("/proc/self/fd"))
    monkeypatch.setenv("PATH", str(tmp_path))
    sandbox.check.cache_clear()
    with pytest.raises(SandboxError, match="apt-get install bubblewrap"):
        EnterpriseConfig(code=True)
    EnterpriseConfig()
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    with pytest.raises(SandboxError, match=r"No permissions to create.*max_user_namespaces"):
        EnterpriseConfig(code=True)
    assert len(os.listdir("/proc/self/fd")) == files


def test_devices_of_this_machine_keep_their_permissions(box: Sandbox) -> None:
    """They are the machine's own, and where root runs the sandbox, they belong to the code."""
    mode = os.stat("/dev/full").st_mode
    outcome = box.run(
        "import os\nos.chmod('/dev/full', 0o646)\nos.setxattr('/dev/full', 'user.x', b'')"
    )
    changed = os.stat("/dev/full").st_mode != mode
    if changed:
        os.chmod("/dev/full", mode & 0o7777)
    assert not changed
    assert "PermissionError" in outcome.text
