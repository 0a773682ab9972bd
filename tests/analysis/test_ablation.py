"""The ablation chart: arms and seeds out of folder names, means, errors and differences by hand."""

import csv
import io
import json
import math
import statistics

import pytest
from matplotlib.image import imread

from analysis.ablation import arm_and_seed, curves, plot, read_sweep, summary, to_csv
from analysis.sweeps import compare
from arlas.types import ConfigurationError


def sweep(root, values):
    """Run folders of a sweep; ``values[arm, seed]`` are the rewards by iteration, lengths ten times those."""
    for (arm, seed), rewards in values.items():
        folder = root / f"arm={arm},seed={seed}"
        folder.mkdir(parents=True)
        rows = [
            {"iteration": i, "agent/reward_mean": r, "agent/reply_tokens": 10 * r, "agent/asr": 0.5}
            for i, r in enumerate(rewards, start=1)
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return root


VALUES = {
    ("no_std", 0): [0.0, 0.2, 0.4, 0.9],
    ("no_std", 1): [0.1, 0.1, 0.3, 0.5],
    ("baseline", 0): [0.0, 0.1, 0.2, 0.3],
    ("baseline", 1): [0.0, 0.1, 0.2, 0.1],
    ("baseline", 2): [0.0, 0.1, 0.2],
}


@pytest.mark.parametrize(
    ("folder", "arm", "seed"),
    [
        ("arm=no_std,seed=2", "no_std", 2),
        ("seed=1", "baseline", 1),
        ("arm=moving", "moving", 0),
        ("algo.lr=0.01,arm=moving,seed=3", "algo.lr=0.01,moving", 3),
    ],
)
def test_folder_names_say_arm_and_seed(folder, arm, seed):
    """Hydra names a sweep's folders by their overrides; everything but the seed tells arms apart."""
    assert arm_and_seed(folder) == (arm, seed)


def test_csv_holds_every_number_and_leaves_out_what_was_not_logged(tmp_path):
    """A row an iteration, run and seat; empty fields where an older run logged nothing."""
    rows = list(csv.DictReader(io.StringIO(to_csv(read_sweep(sweep(tmp_path, VALUES))))))
    assert len(rows) == 19
    assert {r["seat"] for r in rows} == {"agent"}
    (one,) = [r for r in rows if (r["arm"], r["seed"], r["iteration"]) == ("no_std", "1", "4")]
    assert (float(one["reward_mean"]), float(one["reply_tokens"])) == (0.5, 5.0)
    assert one["penalty_length"] == ""


def test_curves_are_means_over_seeds_with_their_error(tmp_path):
    """Iterations that all seeds have, the baseline first; the final quarter and its paired difference."""
    found = curves(read_sweep(sweep(tmp_path, VALUES)))
    assert list(found) == [("agent", "baseline"), ("agent", "no_std")]
    base, arm = found.values()
    assert (base.seeds, base.iterations) == ((0, 1, 2), (1, 2, 3))
    assert (arm.seeds, arm.iterations) == ((0, 1), (1, 2, 3, 4))
    assert arm.values["reward_mean"].mean(axis=0) == pytest.approx([0.05, 0.15, 0.35, 0.7])
    gaps = [
        0.4 - 0.2,
        0.3 - 0.2,
    ]  # by seed, in the last quarter of what both arms have: iteration 3
    half = 12.7062 * statistics.stdev(gaps) / math.sqrt(2)  # Student's t, one degree of freedom
    expected = statistics.fmean(gaps)
    gap = compare(arm, base, "reward_mean")
    assert (gap.gap, gap.low, gap.high) == pytest.approx(
        (expected, expected - half, expected + half), rel=1e-4
    )
    assert (gap.seeds, gap.iterations) == (2, (3, 3))
    table = summary(found).splitlines()
    assert table[2].startswith("| agent | baseline | 3 | 3–3 | 0.200 ± 0.000 | 2.000 ± 0.000 |")
    assert table[3].startswith(
        "| agent | no_std | 2 | 4–4 | 0.700 ± 0.200 | 7.000 ± 2.000 | +0.150"
    )


def test_an_unfinished_run_is_compared_over_what_it_shares(tmp_path):
    """The same rewards, one seed stopped early: no difference is made up out of later iterations."""
    rewards = [0.1 * i for i in range(20)]
    values = {(arm, s): rewards for arm in ("baseline", "no_std") for s in (0, 1)}
    found = curves(read_sweep(sweep(tmp_path, values | {("no_std", 1): rewards[:2]})))
    gap = compare(found["agent", "no_std"], found["agent", "baseline"], "reward_mean")
    assert (gap.gap, gap.low, gap.high) == (0.0, 0.0, 0.0)
    assert gap.iterations == (2, 2)
    assert "| no_std | 2 | 2–2 |" in summary(found)


def test_one_seed_has_no_interval_and_no_band(tmp_path):
    """Nothing is made up where there is one run only; the picture is drawn all the same."""
    only = {k: v for k, v in VALUES.items() if k[1] == 0}
    found = curves(read_sweep(sweep(tmp_path, only)))
    gap = compare(*reversed(found.values()), "reward_mean")
    assert (gap.gap, math.isnan(gap.low), math.isnan(gap.high)) == (pytest.approx(0.6), True, True)
    assert imread(plot(found, tmp_path / "a.png")).std() > 0.01
    assert "nan" in summary(found)


def test_two_panels_a_seat(tmp_path):
    """Reward and response length side by side; hostile arm names are plain text."""
    made = curves(read_sweep(sweep(tmp_path, VALUES | {("$\\frac", 0): [0.0, 0.5]})))
    picture = imread(plot(made, tmp_path / "a.png"))
    assert picture.shape[1] > 2 * picture.shape[0]


def test_two_runs_of_one_arm_and_seed_are_refused(tmp_path):
    """Neither hides the other: both folders are named."""
    sweep(tmp_path, {("moving", 0): [0.1]})
    (tmp_path / "arm=moving").mkdir()
    (tmp_path / "arm=moving" / "metrics.jsonl").write_text(
        '{"iteration": 1, "agent/reward_mean": 5}\n'
    )
    with pytest.raises(ConfigurationError, match=r"arm=moving and arm=moving,seed=0 are both"):
        read_sweep(tmp_path)


def test_an_empty_sweep_says_so(tmp_path):
    """There is nothing to draw yet."""
    with pytest.raises(ConfigurationError, match="holds no run"):
        read_sweep(tmp_path)
