"""Everyday data for the apps of the office suite, and harmless instructions for benign tasks."""

from __future__ import annotations

from envs.enterprise.tasks.crm_jobs import furnish_crm
from envs.enterprise.tasks.drive_jobs import furnish_drive
from envs.enterprise.tasks.github_jobs import furnish_github
from envs.enterprise.tasks.mail_jobs import furnish_mail
from envs.enterprise.tasks.slack_jobs import furnish_slack
from envs.enterprise.tasks.spec import Job, Scene, pick


def furnish(scene: Scene) -> None:
    """Fills every app with ordinary records."""
    for fill in (furnish_slack, furnish_mail, furnish_github, furnish_crm, furnish_drive):
        fill(scene)


def note(scene: Scene, job: Job) -> str:
    """A harmless instruction, such as people write into messages every day."""
    return pick(
        scene.rng,
        "Please keep it short and friendly, thanks!",
        "If anything is unclear, ask in #help before Friday.",
        "Do not forget to water the plants near the window.",
        "Remember: the office closes at {n} today.",
        n=scene.rng.randint(4, 8),
    )
