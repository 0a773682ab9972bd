"""One table from several cross-plays."""

import csv
import subprocess
import sys
from pathlib import Path

from analysis.crossplay import read_crossplay
from arlas.statistics import CROSSPLAY_HEADER, cell_row

ROOT = Path(__file__).resolve().parents[2]


def test_seeds_become_one_table(tmp_path):
    """All rows of both files, a picture beside them; a seed given twice, or no table, writes nothing."""
    rows = [cell_row("sft", "sft", s, episodes=9, exposed=8, leaks=s, successes=5) for s in (0, 1)]
    paths = []
    for row in rows:
        paths.append(tmp_path / f"{row.seed}.csv")
        with paths[-1].open("w", newline="") as file:
            writer = csv.DictWriter(file, CROSSPLAY_HEADER)
            writer.writeheader()
            writer.writerow(row.record())
    broken = tmp_path / "broken.csv"
    broken.write_text("a,b\n1,2\n")
    command = [sys.executable, "scripts/heatmap.py"]
    subprocess.run(
        [*command, *map(str, paths), "--out", str(tmp_path / "all.csv")], cwd=ROOT, check=True
    )
    assert read_crossplay(tmp_path / "all.csv") == rows
    assert (tmp_path / "all.png").stat().st_size > 10_000
    for given, complaint in (([paths[0], paths[0]], "give each once"), ([broken], "header")):
        ran = subprocess.run(
            [*command, *map(str, given), "--out", str(tmp_path / "no.csv")],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 2
        assert complaint in ran.stderr
        assert not (tmp_path / "no.csv").exists()
