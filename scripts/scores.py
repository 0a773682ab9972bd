"""Scores by stage, app and family from saved cross-plays: ``python scripts/scores.py FOLDER … [--out DIR]``."""

from __future__ import annotations

import argparse
from pathlib import Path

from _entry import entry

from analysis.scores import read_cases, scores, scores_csv, scores_markdown
from arlas.checkpoint import write_file
from arlas.types import ConfigurationError


@entry
def main() -> None:
    """Writes ``scores.csv`` and ``scores.md`` into ``--out`` (default: the first folder) and prints the latter."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, help="folders of scripts/crossplay.py")
    parser.add_argument("--out", type=Path, help="folder for the tables")
    args = parser.parse_args()
    try:
        cases, faults = read_cases(args.folders)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    out, rows = args.out or args.folders[0], scores(cases)
    out.mkdir(parents=True, exist_ok=True)
    told = scores_markdown(rows, faults)
    write_file(out / "scores.csv", scores_csv(rows))
    write_file(out / "scores.md", told)
    print(f"{told}\n{out / 'scores.csv'}\n{out / 'scores.md'}")


if __name__ == "__main__":
    main()
