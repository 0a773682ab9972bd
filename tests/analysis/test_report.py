"""The report of a run: counts, plain words, and hostile text that stays text."""

import csv
import json

import pytest
import yaml
from markdown_it import MarkdownIt

from analysis.episodes import SavedEpisodes
from analysis.report import write_report
from analysis.tally import tally
from arlas.statistics import CROSSPLAY_HEADER, cell_row
from arlas.types import Episode, Outcome, PolicyRef, Seat, Status, Turn, Verdict

HOSTILE = (
    "</code><script>alert(1)</script> `` ``` | cell |\n# head\n![x](http://evil.example/a.png) "
    "[go](javascript:x)\x1b[31mred\x1b]0;t\x07 \u202egnp <img src=x onerror=y>"
)


def episode(index, outcome, *, exposed=True, learner=Seat.AGENT, seed=0, **change):
    won = outcome is Outcome.SUCCESS
    base = {
        "task": f"task {HOSTILE}",
        "seed": seed,
        "index": index,
        "learner": learner,
        "attacker": PolicyRef(Seat.ATTACKER, "rl-1", "a1"),
        "agent": PolicyRef(Seat.AGENT, "rl-2", "g2"),
        "goal": HOSTILE,
        "user": {"password": "secret-pw"},
        "turns": (
            Turn(Seat.ATTACKER, 0, "page", HOSTILE, HOSTILE),
            Turn(Seat.AGENT, 0, "page", "gibberish", None, "no action"),
            Turn(Seat.AGENT, 1, "page", "…", f"fill('1', {HOSTILE!r})"),
        ),
        "verdict": Verdict(float(won), float(outcome is Outcome.LEAK), exposed),
        "outcome": outcome,
        "rewards": {Seat.AGENT: 1.0 if won else -1.0, Seat.ATTACKER: 1.0},
        "seconds": 2.0,
    }
    return Episode(**{**base, **change})


@pytest.fixture
def run(tmp_path):
    """A run of two iterations, an evaluation, and a cross-play."""
    folder = tmp_path / "demo"

    def save(where, episodes, tail=""):
        path = folder / where
        path.parent.mkdir(parents=True)
        path.write_text("".join(e.to_json() + "\n" for e in episodes) + tail)

    fault = {"status": Status.ERROR, "error": f"WorldError: {HOSTILE}", "rewards": {}}
    save(
        "iterations/0001/episodes.jsonl",
        [
            *(episode(i, Outcome.LEAK) for i in range(3)),  # a flat group, seed 0
            *(episode(i, o, seed=1) for i, o in enumerate([Outcome.SUCCESS, Outcome.FAILURE])),
            episode(2, None, seed=1, **fault),
        ],
    )
    save(
        "iterations/0002/episodes.jsonl",
        [episode(0, Outcome.FAILURE, exposed=False)],
        '{"task": "ha',
    )
    save("iterations/.0003.tmp/episodes.jsonl", [episode(0, Outcome.LEAK)])
    save("crossplay/base/episodes-0.jsonl", [episode(0, Outcome.SUCCESS, learner=None)])
    taught = [episode(i, Outcome.SUCCESS, learner=None) for i in range(2)]
    save("demos/episodes-0000.jsonl", taught)
    save("rates-base/episodes.jsonl", [*taught, episode(2, Outcome.FAILURE, learner=None)])
    (folder / "config.yaml").write_text(
        yaml.safe_dump(
            {
                "name": HOSTILE,
                "env": {"_target_": "envs.matrix.MatrixConfig", "game": "hidden"},
                "algo": {"iterations": 2, "lr": 1e-4, "eps_low": 0.1},
            }
        )
    )
    (folder / "metrics.jsonl").write_text(
        "".join(
            json.dumps({"iteration": i, "reward/agent": i / 3, "kl": None, "seconds": 10.0}) + "\n"
            for i in (1, 2)
        )
    )
    crossplay(
        folder,
        [
            ("none", "base", 0, 1, 50), ("none", "rl-2", 0, 0, 55),
            ("base", "base", 60, 40, 20), ("base", "rl-2", 60, 5, 22),
            ("rl-2", "base", 30, 20, 20), ("rl-2", "rl-2", 30, 3, 19),
        ],
    )  # fmt: skip
    return folder


def crossplay(folder, cells):
    (folder / "crossplay").mkdir(exist_ok=True)
    with (folder / "crossplay" / "crossplay.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, CROSSPLAY_HEADER)
        writer.writeheader()
        for a, g, e, k, w in cells:
            row = cell_row(a, g, 0, episodes=64, exposed=e, leaks=k, successes=w)
            writer.writerow(row.record())


def test_counts_of_saved_episodes(run):
    """Faults, malformed replies, unexposed attacks and flat groups are counted; nothing else is read."""
    saved = SavedEpisodes(run)
    counts = tally(run, saved)
    assert saved.damaged == 1
    assert sorted(counts.parts) == [
        "crossplay", "demos", "iteration 1", "iteration 2", "rates-base",
    ]  # fmt: skip
    t = counts.total("training")
    assert (t.episodes, t.faults, t.attacked, t.exposed, t.leaks, t.successes) == (7, 1, 6, 5, 3, 1)
    assert (t.flat, t.groups) == (2, 3)
    assert (t.malformed[Seat.AGENT], t.replies[Seat.AGENT]) == (6, 12)
    assert (t.malformed[Seat.ATTACKER], t.replies[Seat.ATTACKER]) == (0, 6)
    assert counts.total("evaluation").episodes == 1
    taught = counts.total("demonstrations")
    assert (taught.episodes, taught.successes, taught.leaks) == (5, 4, 0)


def test_the_report_says_what_was_counted(run):
    """Rates come with their counts and intervals; config, faults, samples and times are there."""
    text = write_report(run).read_text()
    for expected in (
        "60.0 % (3 of 5;",  # ASR of training iteration 1, exposed episodes only
        "n/a (0 of 0)",  # iteration 2: nothing exposed
        "66.7 % (40 of 60; 54.1–77.3)",
        "infrastructure faults, no reward | 14.3 % (1 of 7;",
        "malformed replies, agent | 50.0 % (6 of 12;",
        "unexposed: the agent never saw the attack | 16.7 % (1 of 6;",
        "flat groups, nothing to learn | 66.7 % (2 of 3;",
        "| demonstrations | infrastructure faults, no reward | 0.0 % (0 of 5;",
        "| evaluation | infrastructure faults, no reward | 0.0 % (0 of 1;",
        "- demonstrations: 5 episodes,",
        "- evaluation: 1 episodes,",
        "damaged lines in episode files | 1",
        "envs.matrix.MatrixConfig".replace(".", "&#46;"),
        "2 iterations are done",
        "seconds: 20.0 s over 2 iterations",
        "(crossplay/crossplay.png)",
        "(curves.png)",
        "**Outcome: leak**",
        "**Outcome: success**",
        "**Outcome: failure**",
    ):
        assert expected in text, expected
    assert (run / "crossplay" / "crossplay.png").stat().st_size > 10_000
    assert (run / "curves.png").stat().st_size > 10_000
    assert "eps" not in text
    assert "secret-pw" not in text


def test_effects_are_stated_with_their_interval(run):
    """A clear drop is called lower; a difference within its interval is no effect, in these words."""
    lines = write_report(run).read_text().splitlines()
    asr = next(line for line in lines if line.startswith("- ASR, agent rl-2 against base"))
    assert "8.9 % (8 of 90;" in asr
    assert "66.7 % (60 of 90;" in asr
    assert asr.endswith(": lower, better for the agent.")
    tsr = next(line for line in lines if line.startswith("- TSR, agent rl-2 against base"))
    assert tsr.endswith("**no effect shown**.")
    # the same matrix everywhere: no effect at all
    crossplay(run, [(a, g, 60, 9, 30) for a in ("base", "rl-2") for g in ("base", "rl-2")])
    found = [s for s in write_report(run).read_text().splitlines() if " against base, all" in s]
    assert len(found) == 4
    assert all(s.endswith(": **no effect shown**.") for s in found)


def test_stages_are_compared_over_the_cells_that_both_have(run):
    """An unfinished cross-play, or an attack that one agent never saw, does not tilt the comparison."""
    crossplay(
        run,
        [
            ("base", "base", 60, 30, 20), ("base", "rl-2", 60, 30, 20),
            ("rl-1", "base", 60, 0, 20), ("rl-2", "base", 0, 0, 20), ("rl-2", "rl-2", 60, 60, 20),
        ],
    )  # fmt: skip
    text = write_report(run).read_text()
    line = next(s for s in text.splitlines() if s.startswith("- ASR, agent rl-2 against base"))
    assert line.count("(30 of 60;") == 2
    assert line.endswith("**no effect shown**.")


def test_invariant_14_hostile_text_is_quoted_and_escaped(run):
    """What models wrote makes no element, link, image or control sequence in the report."""
    text = write_report(run).read_text()
    assert not any(ord(c) < 32 and c != "\n" for c in text)
    assert "\u202e" not in text
    assert "<" not in text.replace("\n>", "")
    assert "javascript:" not in text
    assert "`" not in text
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    assert rendered.count("<img") == 2, "the two plots of the report"
    assert "<a " not in rendered
    assert "<script" not in rendered
    assert "<code" not in rendered
    assert rendered.count("<h1") == 1
    assert "planted: &lt;/code&gt;&lt;script&gt;alert(1)&lt;/script&gt;" in rendered, (
        "still legible"
    )
    for table in rendered.split("<table>")[1:]:
        rows = [
            r.count("<td") + r.count("<th>") for r in table.split("</table>")[0].split("<tr>")[1:]
        ]
        assert len(set(rows)) == 1, "no cell of its own"


def test_an_empty_folder_gives_an_honest_report(tmp_path):
    """What is missing is named, and no effect is claimed; a missing folder is an error."""
    text = write_report(tmp_path).read_text()
    for expected in (
        "No config.yaml", "nothing can be said about the effect", "No crossplay.csv",
        "No metrics.jsonl", "No attack was saved", "No times were saved",
    ):  # fmt: skip
        assert expected in text
    with pytest.raises(FileNotFoundError, match="no run folder"):
        write_report(tmp_path / "absent")


def test_a_single_stage_shows_no_training_effect(run):
    """Without a second stage there is nothing to compare."""
    crossplay(run, [("none", "base", 0, 0, 50), ("base", "base", 60, 30, 20)])
    assert "Only one stage of each seat" in write_report(run).read_text()


def test_writing_twice_gives_the_same_report(run):
    """The report is a function of the saved files."""
    assert write_report(run).read_bytes() == write_report(run).read_bytes()
