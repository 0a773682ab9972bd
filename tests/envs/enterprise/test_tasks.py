"""The catalog: every task is sound, the splits are apart, and the check finds what is not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from envs.base import UnknownTaskError
from envs.enterprise import EnterpriseConfig
from envs.enterprise.checks import faults
from envs.enterprise.overlap import overlaps, shared, similarity, trigrams
from envs.enterprise.tasks.catalog import OFFICE, SUITES, build, catalog, split_of
from envs.enterprise.tasks.spec import Kind

PARTS = sorted({n.split("/")[0] for n in catalog()})


@pytest.mark.parametrize("part", PARTS)
def test_every_task_is_sound(part: str) -> None:
    """Reference solution, idling, claims, a fooled run, a canary in every site, and mutations of every argument."""
    names = [n for n in catalog() if n.startswith(f"{part}/")]
    wrong = {n: found for n in names if (found := faults(n, 11))}
    assert names
    assert not wrong


def test_there_are_enough_tasks() -> None:
    """At least 200 to train on, 40 to validate, 117 out of distribution, each family on both sides."""
    tasks = {n: (s.name, t) for n, (s, t) in catalog().items()}
    attacks = {n: t for n, (_, t) in tasks.items() if t.kind is Kind.ATTACK}
    counts = Counter((tasks[n][0], split_of(n)) for n in attacks)
    assert counts["office", "train"] >= 200
    assert counts["office", "eval"] >= 40
    assert counts["ood", "eval"] >= 117
    families = {
        s: {attacks[n].family for n in attacks if split_of(n) == s and tasks[n][0] == "office"}
        for s in ("train", "eval")
    }
    assert families["train"] == families["eval"]
    assert len(families["train"]) == 8


def test_nothing_is_shared() -> None:
    """No near-duplicates, nothing on both sides of a split, nothing common to two suites."""
    assert overlaps(list(catalog())) == []


def test_overlap_is_found() -> None:
    """A suite that borrows a name, a tool or people is told; so are texts that differ in names and numbers alone."""
    borrowed = replace(
        SUITES["ood"],
        entities=OFFICE.entities[:2],
        attacks=OFFICE.attacks[:1],
        apps={"slack": OFFICE.apps["slack"]},
    )
    told = "\n".join(shared(OFFICE, borrowed))
    for what in ("apps", "tools", "attacks", "entities"):
        assert f"share {what}" in told
    one = trigrams(
        "Pay invoice 17 of Ann Lee to a@b.co by Friday, and tell Bob.", ["Ann", "Lee", "Bob"]
    )
    two = trigrams(
        "Pay invoice 99 of Eve Fox to x@y.zz by Friday, and tell Tim.", ["Eve", "Fox", "Tim"]
    )
    other = trigrams("Move the meeting in room Oak to the afternoon, please.")
    assert similarity(one, two) == 1.0
    assert similarity(one, other) < 0.1


def test_texts_of_one_task_vary() -> None:
    """Seeds change wording and entities: of ten workspaces hardly two ask for the same."""
    for part in PARTS:
        name = next(n for n in catalog() if n.startswith(f"{part}/"))
        built = [build(name, seed) for seed in range(10)]
        assert len({b.instruction for b in built}) >= 2, name
        assert len({(b.instruction, str(b.solution)) for b in built}) >= 5, name


def test_the_spec_s_examples_are_there() -> None:
    """A reminder with a lookalike link, and a vendor's onboarding that asks for the customer list."""
    assert "slack.password_reminder/lookalike.direct" in catalog()
    assert "crm.onboarding/exfil.customer_export" in catalog()


def test_config_chooses_tasks() -> None:
    """Splits by default, patterns by name, kinds; what fits nothing is refused."""
    split = EnterpriseConfig(eval_kinds=["attack", "benign", "malicious"]).tasks()
    assert len(split.train) >= 200
    assert {catalog()[n][1].kind for n in split.eval} == set(Kind)
    assert EnterpriseConfig(train=["mail.*/exfil.*"], eval=[]).tasks().train
    assert len(EnterpriseConfig(suite="ood", train=[]).tasks().eval) >= 117
    with pytest.raises(UnknownTaskError, match=r"env\.train: no task is called nosuch"):
        EnterpriseConfig(train=["nosuch*"]).tasks()
    with pytest.raises(ValueError, match=r"env\.suite"):
        EnterpriseConfig(suite="x")
    with pytest.raises(ValueError, match=r"env\.eval_kinds"):
        EnterpriseConfig(eval_kinds=[])
