"""The whole pipeline as its user calls it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "pipeline.py"
SMALL = (
    *("experiment=shaping_ablation", "name=whole", "init.agent=null", "init.attacker=null"),
    *("algo.seats=[agent,attacker]", "algo.iterations=1", "algo.groups=4", "eval.episodes=8"),
    *("collect.episodes=512", "sft.epochs=1"),
)


def pipeline(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *overrides],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_it_goes_from_demonstrations_to_a_report_and_reuses_what_is_there(tmp_path: Path) -> None:
    """One call makes every stage; a second one makes none again, and another start skips the warm start."""
    first = pipeline(tmp_path, *SMALL)
    assert first.returncode == 0, first.stderr
    assert first.stdout.count(": running") == 5
    run = tmp_path / "runs" / "whole"
    assert (run / "report.md").stat().st_size > 500
    assert (run / "crossplay" / "crossplay.png").is_file()
    again = pipeline(tmp_path, *SMALL)
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("already there, reused") == 4
    changed = pipeline(tmp_path, *SMALL, "algo.lr=0.01")
    assert changed.returncode == 2
    assert "another config" in changed.stderr
    assert "algo.lr" in changed.stderr
    start = [f"init.{seat}={run}/sft/{seat}" for seat in ("agent", "attacker")]
    other = pipeline(tmp_path, *SMALL, "name=other", *start)
    assert other.returncode == 0, other.stderr
    assert "demonstrations" not in other.stdout
    assert not (tmp_path / "runs" / "other" / "sft").exists()


def test_a_misspelt_choice_is_one_line(tmp_path: Path) -> None:
    """A wrong experiment or key is told without a traceback, before anything is written."""
    for wrong in ("experiment=demo_wob", "algo.iteration=3"):
        failed = pipeline(tmp_path, wrong)
        assert failed.returncode == 2
        assert failed.stderr.startswith("error: ")
        assert "Traceback" not in failed.stderr
    assert not list(tmp_path.iterdir())
