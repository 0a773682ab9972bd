"""Whether attacks succeed less often from stage to stage: ``python scripts/trends.py CROSSPLAY_DIR … [--out FILE.md]``."""

from __future__ import annotations

import argparse
from pathlib import Path

from _entry import entry

from analysis.trends import read_cells, trends_markdown
from arlas.checkpoint import write_file
from arlas.types import ConfigurationError


@entry
def main() -> None:
    """Prints paired differences along rows and down columns, over all folders (seeds) together."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, help="folders of scripts/crossplay.py")
    parser.add_argument("--out", type=Path, help="a Markdown file to write as well")
    args = parser.parse_args()
    try:
        text = trends_markdown(read_cells(args.folders))
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    if args.out:
        write_file(args.out, text)
    print(text)


if __name__ == "__main__":
    main()
