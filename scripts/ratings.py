"""Nash mixtures, α-rank and Elo of saved cross-plays: ``python scripts/ratings.py CSV … [--measure asr] [--out FILE.md]``."""

from __future__ import annotations

import argparse
from pathlib import Path

from _entry import entry

from analysis.crossplay import read_crossplay
from analysis.ratings import MEASURES, rate, ratings_markdown
from arlas.checkpoint import write_file
from arlas.types import ConfigurationError


@entry
def main() -> None:
    """Prints the ratings, and writes them to ``--out`` if it is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+", type=Path, help="crossplay.csv of one or more seeds")
    parser.add_argument("--measure", choices=list(MEASURES), default="asr")
    parser.add_argument("--without", nargs="*", default=[], help="policies to leave out, e.g. base")
    parser.add_argument("--out", type=Path, help="a Markdown file")
    args = parser.parse_args()
    try:
        rows = [row for path in args.tables for row in read_crossplay(path)]
        rows = [r for r in rows if not {r.attacker, r.player} & set(args.without)]
        told = ratings_markdown(rate(rows, args.measure))
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    if args.out:
        write_file(args.out, told)
    print(told + (f"\n{args.out}" if args.out else ""))


if __name__ == "__main__":
    main()
