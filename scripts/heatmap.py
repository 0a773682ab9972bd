"""One table and picture from the cross-plays of several seeds: ``python scripts/heatmap.py CSV … --out NAME.csv``."""

from __future__ import annotations

import argparse
import csv
import io
from pathlib import Path

from _entry import entry

from analysis.crossplay import plot_crossplay, read_crossplay
from arlas.checkpoint import write_file
from arlas.statistics import CROSSPLAY_HEADER
from arlas.types import ConfigurationError


@entry
def main() -> None:
    """Writes all rows to ``--out`` and draws them beside it. A pair and seed in two files is refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "tables", nargs="+", type=Path, help="crossplay.csv of several runs or seeds"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="the table of all; its picture beside it"
    )
    args = parser.parse_args()
    found: dict[tuple[str, ...], tuple[Path, dict[str, str]]] = {}
    for path in args.tables:
        try:
            rows = read_crossplay(path)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
        for row in rows:
            record = {k: str(v) for k, v in row.record().items()}
            key = tuple(record.get(k, "") for k in ("attacker", "agent", "seed", "guard"))
            if key in found:
                raise ConfigurationError(
                    f"{' '.join(key)} stands in {found[key][0]} and in {path}: give each once"
                )
            found[key] = (path, record)
    text = io.StringIO()
    writer = csv.DictWriter(text, CROSSPLAY_HEADER, lineterminator="\n")
    writer.writeheader()
    writer.writerows(record for _, record in found.values())
    write_file(args.out, text.getvalue())
    print(f"{args.out}\n{plot_crossplay(args.out, args.out.with_suffix('.png'))}")


if __name__ == "__main__":
    main()
