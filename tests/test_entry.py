"""What all scripts share: how they end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
JOB = f"""
import sys, time
sys.path.insert(0, {str(SCRIPTS)!r})
from _entry import entry

@entry
def main():
    try:
        print("up", flush=True)
        time.sleep(60)
    finally:
        print("closed", flush=True)

main()
"""


@pytest.mark.parametrize("ignored", [False, True])
def test_a_terminated_job_closes_what_it_opened(ignored: bool) -> None:
    """SIGTERM ends like Ctrl-C, also for a job in the background, whose shell has it ignore Ctrl-C."""

    def background() -> None:
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    job = subprocess.Popen(
        [sys.executable, "-c", JOB],
        preexec_fn=background,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert job.stdout is not None
    assert job.stdout.readline() == "up\n"
    job.terminate()
    said, complaint = job.communicate(timeout=30)
    assert (job.returncode, said) == (130, "closed\n")
    assert complaint.startswith("stopped; the same command continues")
