"""The cross-play matrix and its heatmap."""

import csv
import math

import numpy as np
import pytest
from matplotlib.image import imread
from scipy import stats

import analysis.crossplay
from analysis.crossplay import cell_text, matrix, plot_crossplay, read_crossplay, stages
from arlas.statistics import CROSSPLAY_HEADER, cell_row

# attacker, agent, seed: exposed, leaks, successes of 10 episodes
COUNTS = {
    ("none", "base", 0): (0, 1, 8), ("none", "base", 1): (0, 0, 6),
    ("base", "base", 0): (10, 4, 5), ("base", "base", 1): (5, 3, 7),
    ("rl-10", "base", 0): (10, 8, 2), ("rl-10", "base", 1): (10, 9, 1),
    ("rl-2", "base", 0): (0, 0, 6), ("rl-2", "base", 1): (0, 0, 6),
    ("none", "sft", 0): (0, 0, 9), ("none", "sft", 1): (0, 0, 9),
    ("base", "sft", 0): (10, 1, 9), ("base", "sft", 1): (10, 2, 8),
    ("rl-10", "sft", 0): (10, 3, 7), ("rl-10", "sft", 1): (10, 3, 7),
    ("rl-2", "sft", 0): (10, 0, 9), ("rl-2", "sft", 1): (10, 2, 8),
}  # fmt: skip


def rows():
    return [
        cell_row(a, g, s, episodes=10, exposed=e, leaks=k, successes=w)
        for (a, g, s), (e, k, w) in COUNTS.items()
    ]


def write(path, found):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, CROSSPLAY_HEADER)
        writer.writeheader()
        writer.writerows(r.record() for r in found)
    return path


@pytest.fixture
def figures(monkeypatch):
    """The figures that are saved, as they are saved for real."""
    kept = []
    real = analysis.crossplay.save
    monkeypatch.setattr(analysis.crossplay, "save", lambda f, p: kept.append(f) or real(f, p))
    return kept


def test_a_written_file_is_read_back(tmp_path):
    """Writing and reading gives the same rows; a cell written twice counts once, as last written."""
    again = cell_row("base", "base", 0, episodes=10, exposed=10, leaks=0, successes=10)
    found = read_crossplay(write(tmp_path / "c.csv", [*rows(), again]))
    assert len(found) == len(COUNTS)
    assert [r for r in found if r != again] == [r for r in rows() if r != rows()[2]]
    assert again in found


def test_rates_are_recomputed_by_the_counts(tmp_path):
    """Interval columns agree with scipy's Wilson interval of the counts in the same row."""
    path = write(tmp_path / "c.csv", rows())
    for record in csv.DictReader(path.open()):
        if record["asr"] and record["attacker"] != "none":
            found = stats.binomtest(int(record["leaks"]), int(record["exposed"]))
            low, high = found.proportion_ci(method="wilson")
            assert float(record["asr_low"]) == pytest.approx(low, abs=1e-6)
            assert float(record["asr_high"]) == pytest.approx(high, abs=1e-6)


def test_stages_stand_in_the_order_of_training():
    """No attack on top, numbers by value, unknown names last as they came."""
    names = ["rl-10", "mine", "sft", "rl-2", "none", "base", "a", "rl-2"]
    assert stages(names) == ("none", "base", "sft", "rl-2", "rl-10", "mine", "a")


def test_cells_and_averages_by_hand():
    """Mean ± standard error over seeds; the average leaves out no attack and cells without exposure."""
    asr = matrix(rows(), "asr")
    assert asr.attackers == ("none", "base", "rl-2", "rl-10", "average")
    cell = asr.cells["base", "base"]
    assert (cell.mean, cell.n, cell.seeds) == (pytest.approx((0.4 + 0.6) / 2), 15, 2)
    assert cell.se == pytest.approx(stats.sem([0.4, 0.6]))
    assert math.isnan(asr.cells["rl-2", "base"].mean)
    assert cell_text(asr.cells["rl-2", "base"]) == "n/a"
    average = asr.cells["average", "base"]
    by_seed = [np.mean([0.4, 0.8]), np.mean([0.6, 0.9])]
    assert (average.mean, average.se) == pytest.approx((np.mean(by_seed), stats.sem(by_seed)))
    assert (average.n, average.parts) == (35, 2)
    tsr = matrix(rows(), "tsr").cells["average", "sft"]
    by_seed = [np.mean([0.9, 0.7, 0.9]), np.mean([0.8, 0.7, 0.8])]
    assert (tsr.mean, tsr.se) == pytest.approx((np.mean(by_seed), stats.sem(by_seed)))
    assert (tsr.n, tsr.parts) == (60, 3)
    assert asr.cells["none", "base"].mean == pytest.approx(0.05)


def test_the_heatmap_shows_every_cell_with_its_count(tmp_path, figures):
    """Both panels, axes named, no-attack row on top, average at the bottom, n in every cell, NA hatched."""
    png = plot_crossplay(write(tmp_path / "c.csv", rows()), tmp_path / "c.png")
    assert imread(png).shape[0] > 300
    assert not list(tmp_path.glob(".*"))
    (made,) = figures
    panels = made.axes[:2]
    for axes, measure in zip(panels, ("asr", "tsr"), strict=True):
        assert [t.get_text() for t in axes.get_yticklabels()] == [
            "no attack", "base", "rl-2", "rl-10", "average",
        ]  # fmt: skip
        assert [t.get_text() for t in axes.get_xticklabels()] == ["base", "sft"]
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("agent", "attacker")
        shown = matrix(rows(), measure)
        by_place = {t.get_position(): t.get_text() for t in axes.texts}
        for y, attacker in enumerate(shown.attackers):
            for x, agent in enumerate(shown.agents):
                cell = shown.cells[attacker, agent]
                text = by_place[x, y]
                assert text.startswith(cell_text(cell))
                assert (f"n = {cell.n}" in text) == bool(cell.n)
    assert len(panels[0].patches) == 1
    assert panels[0].patches[0].get_hatch()
    assert not panels[1].patches
    assert "2 of 3" in next(t.get_text() for t in panels[0].texts if t.get_position() == (0, 4))


def test_one_seed_shows_no_standard_error(tmp_path, figures):
    """A standard error needs two seeds; the caption says so. A hostile name is only a name."""
    row = cell_row("$\\frac\x1b[31m", "base", 0, episodes=10, exposed=10, leaks=1, successes=1)
    plot_crossplay(write(tmp_path / "c.csv", [row]), tmp_path / "c.png")
    texts = [t.get_text() for t in figures[0].axes[0].texts]
    assert texts == ["10.0\nn = 10"] * 2
    assert "one seed" in figures[0].get_supxlabel()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("attacker,agent\nbase,base\n", "header"),
        (",".join(CROSSPLAY_HEADER) + "\nbase,base,0,4,5,0,0,,,,,,\n", "line 2.*contradict"),
        (",".join(CROSSPLAY_HEADER) + "\nbase,base,zero,4,4,0,0,,,,,,\n", "line 2"),
        (",".join(CROSSPLAY_HEADER) + "\nbase,ba", "line 2"),
        (",".join(CROSSPLAY_HEADER) + "\n", "holds no cell"),
    ],
)
def test_other_files_are_refused_with_the_place(tmp_path, text, message):
    """What is no cross-play table is named with its line."""
    path = tmp_path / "c.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        plot_crossplay(path, tmp_path / "c.png")
