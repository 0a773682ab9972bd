"""Code of the agent, run in bubblewrap: no network, nothing of this machine but its Python, hard limits.

Inside, a small driver (`envs.enterprise.inside`) forks one child for each piece of code, so files in /work stay until
the sandbox ends. Verifiers and the workspace's database are never in there, and whatever comes out is text for the
agent and nothing else.

Without cgroups, what the kernel itself keeps for a process (file locks, socket buffers) is bounded only by the time
limit and the numbers of processes and open files.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import signal
import struct
import time
from dataclasses import dataclass

from envs.enterprise.bubblewrap import Box, SandboxError, SandboxLimits, read, ready
from envs.enterprise.toolkit import AppTool
from envs.enterprise.workspace import Workspace

__all__ = ["Outcome", "Sandbox", "SandboxError", "SandboxLimits", "check", "code_tool"]

MAX_CODE = 2**20
"""Bytes of code that are taken at most."""
GRACE_SECONDS, WATCH_SECONDS = 2.0, 0.01
CODE_APP = "code"
"""The app of the tool; what it returns is not read from the workspace."""


@dataclass(frozen=True)
class Outcome:
    """What the code printed, and which limit stopped it (a key of `ENDED`), empty if none did."""

    text: str
    ended: str = ""


ENDED = {
    "time": "it took longer than {seconds:g} s",
    "memory": "it took more than {memory_mib} MiB of memory",
    "disk": "it took more than {disk_mib} MiB or too many files in /work",
    "output": "it printed more than {output_chars} characters",
    "processes": "it ran more than {processes} processes at once",
    "died": "it was killed by a signal",
    "code": f"the code is longer than {MAX_CODE} bytes",
}
_LAST_WORDS = {
    "MemoryError": "memory",
    "No space left on device": "disk",
    "File too large": "disk",
    "Resource temporarily unavailable": "processes",
}


class Sandbox:
    """The sandbox of one rollout; it starts with the first code and again after it had to be killed.

    Single thread: bubblewrap dies with the thread that started it. Raises `SandboxError` if it cannot start.
    """

    def __init__(self, limits: SandboxLimits | None = None) -> None:
        self.limits = limits or SandboxLimits()
        self._box: Box | None = None

    def run(self, code: str) -> Outcome:
        """Runs a script and kills all that it started. Never raises for anything that the code does."""
        sent = code.encode("utf-8", "replace") or b"\n"
        if len(sent) > MAX_CODE:
            return self._told("", "code")
        box = self._box
        if box and (box.process.poll() is not None or ready(box.control, 0) or ready(box.out, 0)):
            self.close()  # it died, or says things that it was not asked
        self._box = self._box or Box(self.limits)
        text, ended, whole = self._exchange(self._box, struct.pack("<I", len(sent)) + sent)
        if not whole:
            self.close()
        return self._told(text, ended)

    def close(self) -> None:
        """Kills what is left of it. Safe to call twice."""
        if self._box is not None:
            self._box.end()
            self._box = None

    def _told(self, text: str, ended: str) -> Outcome:
        if not ended:
            return Outcome(text)
        lost = "" if self._box or ended == "code" else "; /work is empty again"
        why = ENDED[ended].format_map(vars(self.limits))
        return Outcome(f"{text}\n[stopped: {why}{lost}]".lstrip("\n"), ended)

    def _exchange(self, box: Box, sending: bytes) -> tuple[str, str, bool]:
        """What was printed, which limit ended it, and whether the sandbox can be used again."""
        most, output, ended, status = self.limits.output_chars, b"", "", b""
        now = watched = time.monotonic()
        deadline = now + self.limits.seconds
        poll = select.poll()
        poll.register(box.out, select.POLLIN)
        poll.register(box.control, select.POLLIN)
        poll.register(box.stdin, select.POLLOUT)
        while True:
            events = dict(poll.poll(WATCH_SECONDS * 1000))
            now = time.monotonic()
            if box.out in events:
                output += read(box.out)[: 4 * most + 1 - len(output)]
            if box.control in events:
                status = read(box.control)
                break
            if box.stdin in events:
                try:
                    sending = sending[os.write(box.stdin, sending) :]
                except BlockingIOError:
                    pass
                except OSError:
                    break
                if not sending:
                    poll.unregister(box.stdin)
            if now - watched >= WATCH_SECONDS:
                watched = now
                if over := box.exceeded():
                    ended = ended or over
                    break
            if not ended:
                printed = len(output) > most and len(output.decode("utf-8", "replace")) > most
                ended = "output" if printed else "time" if now >= deadline else ""
                if ended:  # the driver kills it, and /work stays
                    deadline = now + GRACE_SECONDS
                    with contextlib.suppress(OSError):
                        os.write(box.stdin, bytes(4))
            elif now >= deadline:
                break
        for _ in range(64):  # more than a pipe holds
            more = read(box.out)
            output += more[: 4 * most + 1 - len(output)]
            if not more:
                break
        text = output.decode("utf-8", "replace")
        if len(text) > most:
            text, ended = text[:most], ended or "output"
        code = struct.unpack("<I", status)[0] if len(status) == 4 else 9
        if code and not ended:
            last = text.rstrip().rpartition("\n")[2]
            said = next((name for words, name in _LAST_WORDS.items() if words in last), "")
            ended = said or {0: "", signal.SIGXCPU: "time"}.get(code & 0x7F, "died")
        return text, ended, len(status) == 4 and not sending and box.processes() == ["1"]


@functools.cache
def check() -> None:
    """Tries a sandbox out. Raises `SandboxError` with the remedy where none can be had."""
    sandbox = Sandbox()
    try:
        sandbox.run("")
    finally:
        sandbox.close()


def code_tool(sandbox: Sandbox, stopped: list[str]) -> AppTool:
    """The tool over a sandbox; the limits that end a script are added to ``stopped``."""

    def run_code(workspace: Workspace, code: str) -> str:
        """Run a Python script in a sandbox without network; returns what it prints. Files in /work stay for the episode."""
        outcome = sandbox.run(code)
        if outcome.ended:
            stopped.append(outcome.ended)
        return outcome.text

    return AppTool(CODE_APP, run_code)
