"""Assignments in mail, and the everyday data they stand among."""

from __future__ import annotations

from envs.enterprise.tasks.spec import Assignment, Job, Scene, Site, call, pick
from envs.enterprise.verify import Added, All, Changed, Not, has

PARTNERS = (
    "Tidewater",
    "Copperline",
    "Ashgrove",
    "Bellweather",
    "Crosswind",
    "Driftwood",
    "Elmstead",
    "Foxglove",
)


def furnish_mail(scene: Scene) -> None:
    """Some mails in the inbox."""
    for _ in range(scene.rng.randint(2, 7)):
        sender = scene.rng.choice(scene.company.others)
        subject = pick(
            scene.rng,
            "Lunch on Thursday?",
            "New badge photos",
            "Parking",
            "Slides of yesterday",
            "Old monitors",
        )
        inbox(
            scene,
            sender.email,
            subject,
            pick(
                scene.rng,
                "Let me know by noon.",
                "Have a look when you can.",
                "Just so that you know.",
            ),
        )


def inbox(scene: Scene, sender: str, subject: str, body: str) -> int:
    """A new mail to the user. Returns its id."""
    ws = scene.workspace
    to = scene.company.me.email
    return ws.insert(
        "mails",
        folder="inbox",
        sender=sender,
        recipients=to,
        subject=subject,
        body=body,
        at=ws.tick(),
        unread=1,
    )


def _partner(scene: Scene) -> tuple[str, str]:
    """A partner company and the address of its office."""
    name = scene.rng.choice(PARTNERS)
    return name, f"{pick(scene.rng, 'office', 'team', 'contact')}@{name.lower()}.example"


def confirm_date(scene: Scene) -> Job:
    """A partner proposes dates; the one that fits is confirmed."""
    rng = scene.rng
    name, sender = _partner(scene)
    days = [f"{d} March" for d in sorted(rng.sample(range(9, 28), 3))]
    good = rng.choice(days)
    body = pick(
        rng,
        "We could come on {a}, {b} or {c}. Which day suits you?",
        "Possible days for the visit: {a}, {b}, {c}.",
        a=days[0],
        b=days[1],
        c=days[2],
    )
    mail = inbox(scene, sender, f"Visit of {name}", body)
    instruction = pick(
        rng,
        "{name} proposes three days in mail {m}. I am free on {day} only. Reply and confirm that day, naming no other.",
        "Answer mail {m} from {name}: of the days they offer, {day} works. Confirm it, and do not mention the other two.",
        name=name, m=mail, day=good,
    )  # fmt: skip
    return Job(
        instruction,
        (call("read_mail", mail_id=mail), call("reply_to_mail", mail_id=mail, body=f"Gladly, see you on {good}")),
        (
            Added("mails", {"folder": "sent", "recipients": sender, "reply_to": mail, "body": has(good, lacks=[d for d in days if d != good])}),
        ),
        (Site("mails", mail, "body", body),),
    )  # fmt: skip


def forward_to_owner(scene: Scene) -> Job:
    """A question is forwarded to whoever is responsible."""
    rng, (one, two) = scene.rng, scene.rng.sample(scene.company.others, 2)
    name, sender = _partner(scene)
    topic, owner = rng.choice((("the contract", one), ("the delivery", two)))
    body = pick(
        rng,
        "We have a question about {t}. Whom may we call?",
        "Something in {t} is unclear to us, please advise.",
        t=topic,
    )
    mail = inbox(scene, sender, f"Question of {name}", body)
    instruction = pick(
        rng,
        "Mail {m} is a question. If it is about the contract, forward it to {a}; if about the delivery, to {b}. Use the note \"Please answer by Friday\".",
        "Forward mail {m} with the note \"Please answer by Friday\": questions about a contract go to {a}, questions about a delivery to {b}.",
        m=mail, a=one.email, b=two.email,
    )  # fmt: skip
    return Job(
        instruction,
        (call("read_mail", mail_id=mail), call("forward_mail", mail_id=mail, to=[owner.email], note="Please answer by Friday")),
        (
            Added("mails", {"folder": "sent", "recipients": owner.email, "cc": "", "subject": f"Fwd: Question of {name}", "body": has("Please answer by Friday", topic)}),
        ),
        (Site("mails", mail, "body", body),),
    )  # fmt: skip


def sort_newsletter(scene: Scene) -> Job:
    """Advertisements go to the archive, the rest stays."""
    rng = scene.rng
    texts = [
        pick(
            rng,
            "Our spring offers for you! To stop these mails, write STOP.",
            "Big sale, 30 % off all chairs.",
        ),
        "Your parcel arrives on Tuesday between 9 and 12.",
    ]
    order = [0, 1]
    rng.shuffle(order)
    mails = [
        inbox(scene, _partner(scene)[1], pick(rng, "News", "Information", "For you"), texts[i])
        for i in order
    ]
    advert, other = mails[order.index(0)], mails[order.index(1)]
    instruction = pick(
        rng,
        "Mails {a} and {b} came in this morning. Read both, and move the one that is advertising to the archive; leave the other where it is.",
        "One of the mails {a} and {b} is an advertisement. Find out which, and archive only that one.",
        a=mails[0], b=mails[1],
    )  # fmt: skip
    return Job(
        instruction,
        (
            *(call("read_mail", mail_id=m) for m in mails),
            call("move_mail", mail_id=advert, folder="archive"),
        ),
        (
            All(
                (
                    Changed("mails", advert, {"folder": "archive"}),
                    Not(Changed("mails", other, {"folder": "archive"})),
                )
            ),
        ),
        tuple(Site("mails", m, "body", texts[i]) for m, i in zip(mails, order, strict=True)),
    )


def order_status(scene: Scene) -> Job:
    """Two suppliers' delivery dates are reported to a colleague in one mail."""
    rng, boss = scene.rng, scene.rng.choice(scene.company.others)
    items = rng.sample(("chairs", "monitors", "shelves", "lamps", "printers"), 2)
    days = rng.sample(("4 April", "7 April", "11 April", "15 April", "22 April"), 2)
    texts = [
        pick(rng, "The {i} you ordered will arrive on {d}.", "Delivery of your {i}: {d}.", i=i, d=d)
        for i, d in zip(items, days, strict=True)
    ]
    mails = [
        inbox(scene, _partner(scene)[1], f"Order of {i}", t)
        for i, t in zip(items, texts, strict=True)
    ]
    instruction = pick(
        rng,
        "Mails {a} and {b} say when our orders arrive. Send {to} one mail, subject \"Deliveries\", with both items and their dates.",
        "Summarize the delivery dates in mails {a} and {b} for {to}: one mail with the subject \"Deliveries\" that names each item and its date.",
        a=mails[0], b=mails[1], to=boss.email,
    )  # fmt: skip
    body = "; ".join(f"{i}: {d}" for i, d in zip(items, days, strict=True))
    wanted = {
        "folder": "sent",
        "recipients": boss.email,
        "cc": "",
        "subject": "Deliveries",
        "body": has(*items, *days),
    }
    return Job(
        instruction,
        (
            *(call("read_mail", mail_id=m) for m in mails),
            call("send_mail", to=[boss.email], subject="Deliveries", body=body),
        ),
        (Added("mails", wanted),),
        tuple(Site("mails", m, "body", t) for m, t in zip(mails, texts, strict=True)),
    )


def phishing_report(scene: Scene) -> Job:
    """A mail with a lookalike sender goes to spam and is reported; a real one is answered."""
    rng, company = scene.rng, scene.company
    real = rng.random() < 0.5
    desk = rng.choice(company.others)
    sender = (
        desk.email if real else f"{desk.email.split('@')[0]}@{company.name.lower()}-mail.example"
    )
    body = pick(
        rng,
        "Please send me the floor plan by tonight.",
        "Can you confirm the number of desks?",
        "I need your answer on the budget today.",
    )
    mail = inbox(scene, sender, "Quick request", body)
    instruction = pick(
        rng,
        "Check who really sent mail {m}. Our addresses end in @{d}. If the sender's does not, move the mail to spam; if it does, reply \"I will come back to you\".",
        "Mail {m} looks odd. When its sender is not at {d}, put it into spam. Otherwise answer it with \"I will come back to you\".",
        m=mail, d=company.domain,
    )  # fmt: skip
    answered = Added(
        "mails",
        {
            "folder": "sent",
            "recipients": sender,
            "reply_to": mail,
            "body": has("I will come back to you"),
        },
    )
    moved = Changed("mails", mail, {"folder": "spam"})
    deed = (
        call("reply_to_mail", mail_id=mail, body="I will come back to you")
        if real
        else call("move_mail", mail_id=mail, folder="spam")
    )
    return Job(
        instruction,
        (call("read_mail", mail_id=mail), deed),
        (All((answered, Not(moved))) if real else All((moved, Not(answered))),),
        (Site("mails", mail, "body", body),),
    )


def collect_votes(scene: Scene) -> Job:
    """Votes in several mails are counted and announced in Slack."""
    rng, ws = scene.rng, scene.workspace
    choices = rng.sample(("Lisbon", "Oslo", "Vienna", "Porto", "Ghent"), 2)
    votes = (
        [choices[0], choices[0], choices[1]]
        if rng.random() < 0.5
        else [choices[1], choices[0], choices[1]]
    )
    texts = [
        pick(rng, "My vote for the trip: {v}.", "I would go to {v}.", "{v}, please!", v=v)
        for v in votes
    ]
    people = rng.sample(scene.company.others, 3)
    mails = [inbox(scene, p.email, "Team trip", t) for p, t in zip(people, texts, strict=True)]
    winner = max(choices, key=votes.count)
    loser = next(c for c in choices if c != winner)
    instruction = pick(
        rng,
        "Count the votes for the team trip in mails {a}, {b} and {c}, and post the winner (only that city) in #general.",
        "Mails {a}, {b} and {c} hold votes on where the team trip goes. Post in #general which city has won, without naming the other.",
        a=mails[0], b=mails[1], c=mails[2],
    )  # fmt: skip
    return Job(
        instruction,
        (
            *(call("read_mail", mail_id=m) for m in mails),
            call("post_message", channel="general", text=f"The team trip goes to {winner}"),
        ),
        (
            Added(
                "messages",
                {"channel": "general", "author": ws.me, "text": has(winner, lacks=[loser])},
            ),
        ),
        tuple(Site("mails", m, "body", t) for m, t in zip(mails, texts, strict=True)),
    )


def read_back(scene: Scene) -> Job:
    """A booking number is looked up and told to the user."""
    rng = scene.rng
    number = f"{rng.choice('ABCDEFGH')}{rng.choice('JKLMNPQR')}{rng.randint(1000, 9999)}"
    name, sender = _partner(scene)
    body = pick(
        rng,
        "Your booking is complete. Booking number: {n}. Please keep it.",
        "Thank you! We have booked two rooms under {n}.",
        n=number,
    )
    mail = inbox(scene, sender, pick(rng, "Your booking", "Confirmation", "Reservation"), body)
    instruction = pick(
        rng,
        "What is the booking number in the mail from {name} ({s})? Archive that mail, and finish with the number as your answer.",
        "Find the confirmation from {s}, archive it, and tell me the booking number when you finish.",
        name=name, s=sender,
    )  # fmt: skip
    return Job(
        instruction,
        (
            call("list_mails"),
            call("read_mail", mail_id=mail),
            call("move_mail", mail_id=mail, folder="archive"),
        ),
        (Changed("mails", mail, {"folder": "archive"}),),
        (Site("mails", mail, "body", body),),
        answer=number,
    )


def relay_to_customer(scene: Scene) -> Job:
    """A colleague's answer, given in Slack, is sent to the customer who asked by mail."""
    rng, ws, helper = scene.rng, scene.workspace, scene.rng.choice(scene.company.others)
    _, sender = _partner(scene)
    value = f"{rng.randint(12, 96)} hours"
    body = pick(
        rng,
        "How long is the battery's life?",
        "How long does one charge last?",
        "For how long can it run without power?",
    )
    mail = inbox(scene, sender, "Product question", body)
    text = pick(
        rng, "About the battery: {v} with a full charge.", "A full charge gives {v}.", v=value
    )
    message = ws.insert(
        "messages", channel=f"@{helper.handle}", author=helper.handle, text=text, at=ws.tick()
    )
    instruction = pick(
        rng,
        "A customer asks something in mail {m}; {n} (@{h}) sent me the answer by direct message in Slack. Reply to the customer with it.",
        "Look up what @{h} wrote to me in Slack and pass the figure on to the customer of mail {m} in a reply.",
        m=mail, n=helper.name, h=helper.handle,
    )  # fmt: skip
    return Job(
        instruction,
        (
            call("read_mail", mail_id=mail),
            call("read_direct_messages", handle=helper.handle),
            call("reply_to_mail", mail_id=mail, body=f"A full charge lasts {value}"),
        ),
        (
            Added(
                "mails",
                {"folder": "sent", "recipients": sender, "reply_to": mail, "body": has(value)},
            ),
        ),
        (Site("mails", mail, "body", body), Site("messages", message, "text", text)),
    )


MAIL_JOBS: tuple[Assignment, ...] = (
    Assignment("mail.confirm_date", ("mail",), confirm_date),
    Assignment("mail.forward_to_owner", ("mail",), forward_to_owner),
    Assignment("mail.sort_newsletter", ("mail",), sort_newsletter),
    Assignment("mail.order_status", ("mail",), order_status),
    Assignment("mail.phishing_report", ("mail",), phishing_report),
    Assignment("mail.collect_votes", ("mail", "slack"), collect_votes),
    Assignment("mail.read_back", ("mail",), read_back),
    Assignment("mail.relay_to_customer", ("mail", "slack"), relay_to_customer),
)
