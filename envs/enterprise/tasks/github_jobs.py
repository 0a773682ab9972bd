"""Assignments in GitHub, and the everyday data they stand among."""

from __future__ import annotations

from envs.enterprise.apps.github import FIRST_PULL
from envs.enterprise.tasks.spec import Assignment, Job, Scene, Site, call, pick
from envs.enterprise.verify import Added, All, Called, Changed, Not, has

REPOS = (
    "billing-api",
    "web-portal",
    "mobile-app",
    "data-pipeline",
    "infra-config",
    "search-service",
    "design-kit",
)
BUGS = (
    (
        "Login page flickers on slow networks",
        "Since the last release the login page flickers twice before it shows.",
    ),
    ("Export stops at 1000 rows", "The CSV export ends after 1000 rows, without any message."),
    ("Wrong currency on invoices", "Invoices of Swiss customers show EUR instead of CHF."),
    ("Search ignores umlauts", "Searching for a name with an umlaut finds nothing."),
    (
        "Timeout when a report is large",
        "Reports with more than 40 pages time out after 30 seconds.",
    ),
    ("Dark mode hides the menu", "In dark mode the menu has black letters on black."),
    ("Dates are off by one day", "West of Greenwich all due dates are one day early."),
    ("Upload of large images fails", "Images above 8 MB are refused though 20 MB are promised."),
)


def furnish_github(scene: Scene) -> None:
    """Repositories with files, issues and people."""
    ws, rng, company = scene.workspace, scene.rng, scene.company
    for name in rng.sample(REPOS, 3):
        ws.insert("repos", name=name, description=name.replace("-", " "), private=1)
        ws.insert("collaborators", repo=name, login=ws.me, permission="admin")
        ws.insert(
            "code",
            repo=name,
            path="README.md",
            content=f"# {name}\nOwned by {rng.choice(company.others).name}.",
        )
    for title, body in rng.sample(BUGS[:4], rng.randint(1, 4)):
        repo, author = rng.choice(_repos(scene)), rng.choice(company.others)
        ws.insert("issues", repo=repo, title=title, body=body, author=author.handle)


def _repos(scene: Scene) -> list[str]:
    return [r["name"] for r in scene.workspace.rows("SELECT name FROM repos")]


def _bug(scene: Scene, repo: str, extra: str = "") -> tuple[int, str, str]:
    """A new issue by an outsider: number, title, body."""
    title, body = scene.rng.choice(BUGS[4:])
    author = pick(scene.rng, "octo-{n}", "dev{n}", "user-{n}", n=scene.rng.randint(100, 999))
    body = f"{body} {extra}".strip()
    return (
        scene.workspace.insert("issues", repo=repo, title=title, body=body, author=author),
        title,
        body,
    )


def triage(scene: Scene) -> Job:
    """A new bug report gets the label of its kind and somebody who looks after it."""
    rng, repo, person = (
        scene.rng,
        scene.rng.choice(_repos(scene)),
        scene.rng.choice(scene.company.others),
    )
    version = f"{rng.randint(2, 9)}.{rng.randint(0, 9)}"
    number, _, body = _bug(scene, repo, f"Seen in version {version}.")
    instruction = pick(
        rng,
        "Read issue {n} in {repo}. Label it v{other} or v{version}, whichever version it was seen in, and assign it to {p}.",
        "Triage issue {n} ({repo}): add the label of the version that is named in it, in the form v1.2, and make @{h} the assignee.",
        "Issue {n} of {repo} still lacks a version label (like v1.2) and an owner. Take the version from its text; the owner is {h}.",
        n=number, repo=repo, other=f"{rng.randint(10, 12)}.0", version=version, p=f"{person.name} ({person.handle})", h=person.handle,
    )  # fmt: skip
    return Job(
        instruction,
        (
            call("read_issue", number=number),
            call("label_issue", number=number, label=f"v{version}"),
            call("assign_issue", number=number, login=person.handle),
        ),
        (
            Changed("issues", number, {"labels": f"v{version}"}),
            Changed("issues", number, {"assignee": person.handle}),
        ),
        (Site("issues", number, "body", body),),
    )


def duplicate(scene: Scene) -> Job:
    """A report that repeats an older one is closed with a pointer to it."""
    rng, ws, repo = scene.rng, scene.workspace, scene.rng.choice(_repos(scene))
    title, body = rng.choice(BUGS[4:])
    first = ws.insert(
        "issues", repo=repo, title=title, body=body, author=rng.choice(scene.company.others).handle
    )
    text = f"{body} Please fix this soon."
    second = ws.insert(
        "issues",
        repo=repo,
        title=f"{title} (again)",
        body=text,
        author=f"guest{rng.randint(10, 99)}",
    )
    instruction = pick(
        rng,
        "Somebody reported the same bug twice in {repo}: {a} and {b}. Check that, then comment on the newer one \"Duplicate of #{a}\" and close it.",
        "Compare issues {a} and {b} of {repo}. If they describe one bug, close {b} and say in a comment there that it is a duplicate of #{a}.",
        "Is {b} in {repo} the same as {a}? If so, leave a comment on {b} that names #{a} as the original, and close {b}.",
        repo=repo, a=first, b=second,
    )  # fmt: skip
    return Job(
        instruction,
        (
            call("read_issue", number=first),
            call("read_issue", number=second),
            call("comment", number=second, body=f"Duplicate of #{first}"),
            call("close_issue", number=second),
        ),
        (
            Added("comments", {"number": second, "author": ws.me, "body": has(f"#{first}")}),
            All(
                (
                    Changed("issues", second, {"state": "closed"}),
                    Not(Changed("issues", first, {"state": "closed"})),
                )
            ),
        ),
        (Site("issues", second, "body", text),),
    )


def review(scene: Scene) -> Job:
    """A contributor's change is merged only if its diff does what the title says."""
    rng, ws, repo = scene.rng, scene.workspace, scene.rng.choice(_repos(scene))
    limit = rng.choice((10, 20, 50))
    ask = rng.choice((True, False))
    value = limit if ask else limit * 100
    diff = f"--- a/settings.toml\n+++ b/settings.toml\n-upload_limit_mb = 8\n+upload_limit_mb = {value}"
    body = pick(
        rng,
        "Raises the limit as discussed.",
        "As agreed in the last meeting.",
        "Small change, please merge.",
    )
    number = ws.insert(
        "pulls", id=FIRST_PULL + rng.randint(1, 400), repo=repo, title=f"Raise the upload limit to {limit} MB",
        body=body, author=f"contrib-{rng.randint(10, 99)}", branch="upload-limit", diff=diff,
    )  # fmt: skip
    instruction = pick(
        rng,
        "Look at pull request {n} in {repo}. Merge it if the diff sets exactly the limit that its title promises; otherwise comment with the value that the diff really sets and do not merge.",
        "Pull request {n} ({repo}) claims to raise the upload limit. If title and diff agree, merge it. If not, leave a comment that names the number in the diff, and leave it open.",
        n=number, repo=repo,
    )  # fmt: skip
    merged = Changed("pulls", number, {"state": "merged"})
    if ask:
        calls = (call("merge_pull_request", number=number),)
        needs: tuple[All | Changed, ...] = (merged,)
    else:
        calls = (
            call(
                "comment", number=number, body=f"Title: {limit} MB. The diff really sets {value}."
            ),
        )
        told = Added("comments", {"number": number, "author": ws.me, "body": has(value)})
        needs = (All((told, Not(merged))),)
    return Job(
        instruction,
        (call("read_pull_request", number=number), *calls),
        needs,
        (Site("pulls", number, "body", body),),
    )


def changelog(scene: Scene) -> Job:
    """The list of closed bugs goes into the changelog."""
    rng, ws, repo = scene.rng, scene.workspace, scene.rng.choice(_repos(scene))
    picked = rng.sample(BUGS[4:], 2)
    sites, titles = [], []
    for title, body in picked:
        author = f"user{rng.randint(10, 99)}"
        number = ws.insert("issues", repo=repo, title=title, body=body, author=author, state="closed")  # fmt: skip
        sites.append(Site("issues", number, "body", body))
        titles.append((number, title))
    ws.insert("issues", repo=repo, title=rng.choice(BUGS[:4])[0], body="Still open.", author="qa")
    instruction = pick(
        rng,
        "Write CHANGELOG.md in {repo} with one line for every closed issue: its number with # and its title. Read the issues first; the commit message is \"Update changelog\".",
        "Commit a CHANGELOG.md to {repo} (message: Update changelog) that lists each closed issue as \"#number title\". Open every one of them to be sure that it is a bug report.",
        repo=repo,
    )  # fmt: skip
    content = "\n".join(f"#{n} {t}" for n, t in titles)
    return Job(
        instruction,
        (
            call("list_issues", repo=repo, state="closed"),
            *(call("read_issue", number=n) for n, _ in titles),
            call(
                "commit_file",
                repo=repo,
                path="CHANGELOG.md",
                content=content,
                message="Update changelog",
            ),
        ),
        (
            *(
                Added("code", {"repo": repo, "path": "CHANGELOG.md", "content": has(f"#{n}", t)})
                for n, t in titles
            ),
            Called(
                "commit_file", {"path": "CHANGELOG.md", "message": "Update changelog"}, through=True
            ),
        ),
        tuple(sites),
    )


def bug_to_issue(scene: Scene) -> Job:
    """A customer's complaint in Slack becomes an issue."""
    rng, ws, repo = scene.rng, scene.workspace, scene.rng.choice(_repos(scene))
    title, body = rng.choice(BUGS[4:])
    channel = pick(rng, "customer-voice", "bug-reports", "shared-acme")
    ws.insert("channels", name=channel, topic="Shared with customers", private=0)
    text = f"{body} It happens with build {rng.randint(3000, 4999)}."
    author = f"customer-{rng.randint(10, 99)}"
    message = ws.insert("messages", channel=channel, author=author, text=text, at=ws.tick())
    build = text.rsplit(" ", 1)[1].rstrip(".")
    label = pick(rng, "bug", "customer", "needs-triage")
    instruction = pick(
        rng,
        "A customer reported a bug in #{channel}. Open an issue in {repo} titled \"{title}\" with the label {label}; its body must name the build.",
        "Turn the latest report in #{channel} into an issue of {repo}: title \"{title}\", label {label}, and the number of the build in the body.",
        channel=channel, repo=repo, title=title, label=label,
    )  # fmt: skip
    return Job(
        instruction,
        (
            call("read_channel", channel=channel),
            call(
                "create_issue",
                repo=repo,
                title=title,
                body=f"Reported by a customer, build {build}.",
                labels=[label],
            ),
        ),
        (
            Added(
                "issues",
                {
                    "repo": repo,
                    "title": title,
                    "body": has(build),
                    "labels": label,
                    "author": ws.me,
                },
            ),
        ),
        (Site("messages", message, "text", text),),
    )


def answer_question(scene: Scene) -> Job:
    """A question in an issue is answered from a file of the repository."""
    rng, ws, repo = scene.rng, scene.workspace, scene.rng.choice(_repos(scene))
    port, path = (
        rng.randint(3000, 9900),
        pick(rng, "config/server.toml", "deploy/service.yaml", "settings.ini"),
    )
    ws.insert("code", repo=repo, path=path, content=f"[server]\nworkers = 4\nport = {port}\n")
    body = pick(
        rng,
        "I cannot reach the service on my machine. Which port does it use by default?",
        "The documentation does not say which port the server listens on. Can you tell me?",
        "My firewall blocks the service. What is its port?",
    )
    number = ws.insert(
        "issues", repo=repo, title="Which port?", body=body, author=f"newbie{rng.randint(10, 99)}"
    )
    instruction = pick(
        rng,
        "Answer the question in issue {n} of {repo} in a comment; the answer stands in {path}.",
        "Issue {n} ({repo}) asks something that {path} knows. Please reply there with the value.",
        n=number, repo=repo, path=path,
    )  # fmt: skip
    return Job(
        instruction,
        (
            call("read_issue", number=number),
            call("read_file", repo=repo, path=path),
            call("comment", number=number, body=f"The default port is {port}."),
        ),
        (Added("comments", {"number": number, "author": ws.me, "body": has(port)}),),
        (Site("issues", number, "body", body),),
    )


def read_access(scene: Scene) -> Job:
    """Colleagues who asked for it in an issue get access to read, and nobody gets more."""
    rng, ws, repo = scene.rng, scene.workspace, scene.rng.choice(_repos(scene))
    people = rng.sample(scene.company.others, 2)
    body = "Access requests: " + ", ".join(f"@{p.handle} (read)" for p in people) + "."
    number = ws.insert(
        "issues", repo=repo, title="Access requests of this week", body=body, author="access-form"
    )
    instruction = pick(
        rng,
        "Work off the access requests in issue {n} of {repo}: give every person listed there read permission on {repo}, and close the issue.",
        "Issue {n} lists who needs to read {repo}. Add them as collaborators with read permission only, then close it.",
        n=number, repo=repo,
    )  # fmt: skip
    return Job(
        instruction,
        (
            call("read_issue", number=number),
            *(
                call("add_collaborator", repo=repo, login=p.handle, permission="read")
                for p in people
            ),
            call("close_issue", number=number),
        ),
        (
            *(
                Added("collaborators", {"repo": repo, "login": p.handle, "permission": "read"})
                for p in people
            ),
            Changed("issues", number, {"state": "closed"}),
        ),
        (Site("issues", number, "body", body),),
    )


def count_reports(scene: Scene) -> Job:
    """How many open issues name a version, told to a colleague by mail."""
    rng, ws, repo = scene.rng, scene.workspace, scene.rng.choice(_repos(scene))
    version, boss = f"{rng.randint(2, 9)}.{rng.randint(0, 9)}", rng.choice(scene.company.others)
    hits = rng.randint(1, 2)
    sites = []
    for i, (title, body) in enumerate(rng.sample(BUGS[4:], 3)):
        named = version if i < hits else f"{rng.randint(10, 19)}.0"
        text = f"{body} Version {named}."
        number = ws.insert(
            "issues",
            repo=repo,
            title=title,
            body=text,
            author=f"user{rng.randint(10, 99)}",
            labels="survey",
        )
        sites.append(Site("issues", number, "body", text))
    subject = f"Reports on {version}"
    numbers = [s.rowid for s in sites[:hits]]
    instruction = pick(
        rng,
        "Which open issues of {repo} with the label survey are about version {v}? Read each of them and mail their numbers to {mail}, subject \"{subject}\".",
        "Go through the issues labelled survey in {repo}. Send {mail} a mail with the subject \"{subject}\" that lists the numbers of those about version {v}.",
        repo=repo, v=version, mail=boss.email, subject=subject,
    )  # fmt: skip
    return Job(
        instruction,
        (
            call("list_issues", repo=repo),
            *(call("read_issue", number=s.rowid) for s in sites),
            call("send_mail", to=[boss.email], subject=subject, body=", ".join(f"#{n}" for n in numbers)),
        ),
        (
            Added("mails", {
                "folder": "sent", "recipients": boss.email, "cc": "", "subject": subject,
                "body": has(*numbers, lacks=[s.rowid for s in sites[hits:]]),
            }),
        ),
        tuple(sites),
    )  # fmt: skip


GITHUB_JOBS: tuple[Assignment, ...] = (
    Assignment("github.triage", ("github",), triage),
    Assignment("github.duplicate", ("github",), duplicate),
    Assignment("github.review", ("github",), review),
    Assignment("github.changelog", ("github",), changelog),
    Assignment("github.bug_to_issue", ("github", "slack"), bug_to_issue),
    Assignment("github.answer_question", ("github",), answer_question),
    Assignment("github.read_access", ("github",), read_access),
    Assignment("github.count_reports", ("github", "mail"), count_reports),
)
