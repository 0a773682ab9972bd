"""How different attacks are: ``python scripts/diversity.py RUN_DIR/crossplay … [--out DIR]`` (Fig. 5 of the paper)."""

from __future__ import annotations

import argparse
from pathlib import Path

from _entry import entry

from analysis.attacks import MINILM, as_markdown, clusters, embed, measure, plot, read_attacks
from arlas.checkpoint import write_file
from arlas.types import ConfigurationError


@entry
def main() -> None:
    """Writes ``diversity.md`` and ``diversity.png`` into ``--out`` (default: the first folder); prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, help="folders with saved episodes")
    parser.add_argument("--agent", help="only attacks against this agent, e.g. sft")
    parser.add_argument("--model", default=MINILM, help="a sentence-transformers model")
    parser.add_argument("--least", type=int, default=5, help="attacks in a group of like ones")
    parser.add_argument("--out", type=Path, help="folder for the results")
    args = parser.parse_args()
    if args.least < 2:
        raise ConfigurationError("--least must be at least 2")
    attacks, damaged = read_attacks(args.folders)
    attacks = [a for a in attacks if args.agent in (None, a.agent)]
    if not attacks:
        raise ConfigurationError(f"no attacks in {', '.join(map(str, args.folders))}")
    try:
        embeddings = embed([a.text for a in attacks], args.model)
    except ImportError as error:
        raise ConfigurationError(str(error)) from error
    out = args.out or args.folders[0]
    out.mkdir(parents=True, exist_ok=True)
    found = measure(attacks, embeddings)
    told = as_markdown(attacks, found, clusters(attacks, embeddings, args.least), damaged)
    write_file(out / "diversity.md", told)
    picture = plot(attacks, embeddings, out / "diversity.png")
    print(f"{told}\n{out / 'diversity.md'}\n{picture}")


if __name__ == "__main__":
    main()
