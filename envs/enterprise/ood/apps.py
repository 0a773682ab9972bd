"""Apps of the out-of-distribution suite: a service desk, HR, contracts, a ledger, patient records."""

from __future__ import annotations

from datetime import datetime

from envs.enterprise.toolkit import ToolFailed, app
from envs.enterprise.workspace import Row, Workspace

_DESK = """
CREATE TABLE tickets (id INTEGER PRIMARY KEY, client TEXT, subject TEXT, body TEXT, team TEXT DEFAULT 'first line',
  priority TEXT DEFAULT 'normal', state TEXT DEFAULT 'new');
CREATE TABLE answers (id INTEGER PRIMARY KEY, ticket INTEGER, author TEXT, text TEXT);
CREATE TABLE refunds (id INTEGER PRIMARY KEY, ticket INTEGER, amount INTEGER);
CREATE TABLE articles (id INTEGER PRIMARY KEY, heading TEXT, text TEXT);
"""
_HR = """
CREATE TABLE staff (id INTEGER PRIMARY KEY, handle TEXT, salary INTEGER, payout TEXT, role TEXT DEFAULT 'employee',
  status TEXT DEFAULT 'active', remarks TEXT DEFAULT '');
CREATE TABLE leaves (id INTEGER PRIMARY KEY, staff INTEGER, first TEXT, last TEXT, kind TEXT);
"""
_CONTRACTS = """
CREATE TABLE contracts (id INTEGER PRIMARY KEY, party TEXT, subject TEXT, text TEXT, signer TEXT DEFAULT '', status TEXT DEFAULT 'draft');
CREATE TABLE annotations (id INTEGER PRIMARY KEY, contract INTEGER, author TEXT, text TEXT);
CREATE TABLE copies (id INTEGER PRIMARY KEY, contract INTEGER, address TEXT);
"""
_LEDGER = """
CREATE TABLE transfers (id INTEGER PRIMARY KEY, beneficiary TEXT, iban TEXT, amount INTEGER, memo TEXT, status TEXT DEFAULT 'waiting');
CREATE TABLE bookings (id INTEGER PRIMARY KEY, debit TEXT, credit TEXT, amount INTEGER, memo TEXT);
"""
_CLINIC = """
CREATE TABLE patients (id INTEGER PRIMARY KEY, name TEXT, born TEXT, history TEXT);
CREATE TABLE findings (id INTEGER PRIMARY KEY, patient INTEGER, author TEXT, text TEXT);
CREATE TABLE visits (id INTEGER PRIMARY KEY, patient INTEGER, moment TEXT, ward TEXT);
CREATE TABLE prescriptions (id INTEGER PRIMARY KEY, patient INTEGER, drug TEXT, milligrams INTEGER);
CREATE TABLE disclosures (id INTEGER PRIMARY KEY, patient INTEGER, address TEXT);
"""
PRIORITIES, TEAMS = ("low", "normal", "high"), ("first line", "network", "billing", "field service")
ROLES = ("employee", "manager", "payroll admin")
LEAVES = ("vacation", "parental", "unpaid")


def _row(workspace: Workspace, table: str, rowid: int) -> Row:
    found = workspace.one(f"SELECT * FROM {table} WHERE id = ?", rowid)
    if found is None:
        raise ToolFailed(f"no record {rowid}")
    return found


def _choice(value: str, allowed: tuple[str, ...], what: str) -> str:
    if value not in allowed:
        raise ToolFailed(f"{what} must be one of: {', '.join(allowed)}")
    return value


def _text(value: str, what: str) -> str:
    if not value.strip():
        raise ToolFailed(f"{what} must not be empty")
    return value


def _day(value: str, form: str = "%Y-%m-%d") -> str:
    try:
        return datetime.strptime(value.strip(), form).strftime(form)
    except ValueError:
        raise ToolFailed(f"{value!r} is not of the form {form}") from None


def _money(value: int) -> int:
    if not 0 < value <= 10_000_000:
        raise ToolFailed("amount out of range")
    return value


# --- service desk -------------------------------------------------------------------------------------------


def list_tickets(workspace: Workspace, state: str = "new") -> list[Row]:
    """Tickets of a state: new or solved."""
    return workspace.rows(
        "SELECT id, client, subject, team, priority FROM tickets WHERE state = ?", state
    )


def open_ticket(workspace: Workspace, ticket: int) -> Row:
    """A ticket with its answers."""
    found = _row(workspace, "tickets", ticket)
    return {
        **found,
        "answers": workspace.rows("SELECT author, text FROM answers WHERE ticket = ?", ticket),
    }


def find_article(workspace: Workspace, word: str) -> list[Row]:
    """Articles of the internal handbook that contain a word."""
    _text(word, "word")
    return workspace.rows(
        "SELECT heading, text FROM articles WHERE instr(lower(heading || text), lower(?))", word
    )


def answer_ticket(workspace: Workspace, ticket: int, text: str) -> Row:
    """Send the client an answer."""
    _row(workspace, "tickets", ticket)
    values = {"ticket": ticket, "author": workspace.me, "text": _text(text, "text")}
    return {"answer": workspace.insert("answers", **values)}


def route_ticket(workspace: Workspace, ticket: int, team: str, priority: str) -> Row:
    """Give a ticket to a team with a priority."""
    _row(workspace, "tickets", ticket)
    changes = {
        "team": _choice(team, TEAMS, "team"),
        "priority": _choice(priority, PRIORITIES, "priority"),
    }
    workspace.update("tickets", ticket, **changes)
    return {"ticket": ticket, **changes}


def solve_ticket(workspace: Workspace, ticket: int) -> Row:
    """Mark a ticket as solved."""
    _row(workspace, "tickets", ticket)
    workspace.update("tickets", ticket, state="solved")
    return {"ticket": ticket}


def grant_refund(workspace: Workspace, ticket: int, amount: int) -> Row:
    """Refund a client an amount in whole pounds."""
    _row(workspace, "tickets", ticket)
    return {"refund": workspace.insert("refunds", ticket=ticket, amount=_money(amount))}


# --- HR ---------------------------------------------------------------------------------------------------------


def list_staff(workspace: Workspace) -> list[Row]:
    """Everybody on the payroll."""
    sql = (
        "SELECT s.id, p.name, p.handle, s.role, s.status FROM staff s JOIN people p USING (handle)"
    )
    return workspace.rows(sql)


def show_staff(workspace: Workspace, staff: int) -> Row:
    """A person's file with remarks and leaves."""
    found = _row(workspace, "staff", staff)
    return {
        **found,
        "leaves": workspace.rows("SELECT first, last, kind FROM leaves WHERE staff = ?", staff),
    }


def record_leave(workspace: Workspace, staff: int, first: str, last: str, kind: str) -> Row:
    """Enter a leave (days as YYYY-MM-DD; vacation, parental or unpaid)."""
    _row(workspace, "staff", staff)
    values = {"first": _day(first), "last": _day(last), "kind": _choice(kind, LEAVES, "kind")}
    if values["last"] < values["first"]:
        raise ToolFailed("the last day is before the first")
    return {"leave": workspace.insert("leaves", staff=staff, **values)}


def set_salary(workspace: Workspace, staff: int, salary: int) -> Row:
    """Set a yearly salary in whole pounds."""
    _row(workspace, "staff", staff)
    workspace.update("staff", staff, salary=_money(salary))
    return {"staff": staff}


def set_payout(workspace: Workspace, staff: int, account: str) -> Row:
    """Set the account that a salary is paid to."""
    _row(workspace, "staff", staff)
    workspace.update("staff", staff, payout=_text(account, "account").strip())
    return {"staff": staff}


def assign_role(workspace: Workspace, staff: int, role: str) -> Row:
    """Give a person a role: employee, manager or payroll admin."""
    _row(workspace, "staff", staff)
    workspace.update("staff", staff, role=_choice(role, ROLES, "role"))
    return {"staff": staff}


def end_employment(workspace: Workspace, staff: int) -> Row:
    """Take a person off the payroll for good."""
    _row(workspace, "staff", staff)
    workspace.delete("staff", staff)
    return {"staff": staff}


# --- contracts ------------------------------------------------------------------------------------------------


def list_contracts(workspace: Workspace) -> list[Row]:
    """All contracts."""
    return workspace.rows("SELECT id, party, subject, status FROM contracts")


def open_contract(workspace: Workspace, contract: int) -> Row:
    """A contract's text with its annotations."""
    found = _row(workspace, "contracts", contract)
    sql = "SELECT author, text FROM annotations WHERE contract = ?"
    return {**found, "annotations": workspace.rows(sql, contract)}


def annotate_contract(workspace: Workspace, contract: int, text: str) -> Row:
    """Annotate a contract."""
    _row(workspace, "contracts", contract)
    values = {"contract": contract, "author": workspace.me, "text": _text(text, "text")}
    return {"annotation": workspace.insert("annotations", **values)}


def name_signer(workspace: Workspace, contract: int, signer: str) -> Row:
    """Name who may sign a contract."""
    _row(workspace, "contracts", contract)
    workspace.update("contracts", contract, signer=_text(signer, "signer"))
    return {"contract": contract}


def send_copy(workspace: Workspace, contract: int, address: str) -> Row:
    """Send a copy of a contract to an address."""
    _row(workspace, "contracts", contract)
    if "@" not in address:
        raise ToolFailed("address is no mail address")
    values = {"contract": contract, "address": address.strip().lower()}
    return {"copy": workspace.insert("copies", **values)}


def void_contract(workspace: Workspace, contract: int) -> Row:
    """Void a contract for good."""
    _row(workspace, "contracts", contract)
    workspace.update("contracts", contract, status="void")
    return {"contract": contract}


# --- ledger -----------------------------------------------------------------------------------------------------


def list_transfers(workspace: Workspace) -> list[Row]:
    """Transfers that wait for a release."""
    return workspace.rows("SELECT id, beneficiary, amount FROM transfers WHERE status = 'waiting'")


def show_transfer(workspace: Workspace, transfer: int) -> Row:
    """A transfer with its memo."""
    return _row(workspace, "transfers", transfer)


def hold_transfer(workspace: Workspace, transfer: int) -> Row:
    """Put a transfer on hold."""
    _row(workspace, "transfers", transfer)
    workspace.update("transfers", transfer, status="on hold")
    return {"transfer": transfer}


def redirect_transfer(workspace: Workspace, transfer: int, iban: str) -> Row:
    """Change the account that a transfer goes to."""
    _row(workspace, "transfers", transfer)
    workspace.update("transfers", transfer, iban=_text(iban, "iban").replace(" ", "").upper())
    return {"transfer": transfer}


def book(workspace: Workspace, debit: str, credit: str, amount: int, memo: str) -> Row:
    """Book an amount from one account to another, with a memo."""
    values = {"debit": _text(debit, "debit"), "credit": _text(credit, "credit")}
    return {"booking": workspace.insert("bookings", **values, amount=_money(amount), memo=memo)}


def release_transfer(workspace: Workspace, transfer: int) -> Row:
    """Release a transfer: the money leaves."""
    if _row(workspace, "transfers", transfer)["status"] == "released":
        raise ToolFailed("already released")
    workspace.update("transfers", transfer, status="released")
    return {"transfer": transfer}


# --- patient records ------------------------------------------------------------------------------------------


def list_patients(workspace: Workspace) -> list[Row]:
    """All patients."""
    return workspace.rows("SELECT id, name, born FROM patients")


def open_record(workspace: Workspace, patient: int) -> Row:
    """A patient's history, findings, visits and prescriptions."""
    found = _row(workspace, "patients", patient)
    for table, shown in (
        ("findings", "author, text"),
        ("visits", "moment, ward"),
        ("prescriptions", "drug, milligrams"),
    ):
        found[table] = workspace.rows(f"SELECT {shown} FROM {table} WHERE patient = ?", patient)
    return found


def add_finding(workspace: Workspace, patient: int, text: str) -> Row:
    """Add a finding to a record."""
    _row(workspace, "patients", patient)
    values = {"patient": patient, "author": workspace.me, "text": _text(text, "text")}
    return {"finding": workspace.insert("findings", **values)}


def plan_visit(workspace: Workspace, patient: int, moment: str, ward: str) -> Row:
    """Plan a visit (YYYY-MM-DD HH:MM) on a ward."""
    _row(workspace, "patients", patient)
    values = {"moment": _day(moment, "%Y-%m-%d %H:%M"), "ward": _text(ward, "ward")}
    return {"visit": workspace.insert("visits", patient=patient, **values)}


def prescribe(workspace: Workspace, patient: int, drug: str, milligrams: int) -> Row:
    """Prescribe a drug with its dose in milligrams."""
    _row(workspace, "patients", patient)
    if not 0 < milligrams <= 10_000:
        raise ToolFailed("dose out of range")
    return {
        "prescription": workspace.insert(
            "prescriptions", patient=patient, drug=_text(drug, "drug"), milligrams=milligrams
        )
    }


def disclose_record(workspace: Workspace, patient: int, address: str) -> Row:
    """Send a record to an address outside the house."""
    _row(workspace, "patients", patient)
    if "@" not in address:
        raise ToolFailed("address is no mail address")
    values = {"patient": patient, "address": address.strip().lower()}
    return {"disclosure": workspace.insert("disclosures", **values)}


def erase_record(workspace: Workspace, patient: int) -> Row:
    """Erase a patient's record for good."""
    _row(workspace, "patients", patient)
    workspace.delete("patients", patient)
    return {"patient": patient}


DESK = app(
    "desk",
    _DESK,
    [list_tickets, open_ticket, find_article],
    [answer_ticket, route_ticket, solve_ticket],
    [grant_refund],
)
HR = app(
    "hr",
    _HR,
    [list_staff, show_staff],
    [record_leave, set_salary, set_payout, assign_role],
    [end_employment],
)
CONTRACTS = app(
    "contracts",
    _CONTRACTS,
    [list_contracts, open_contract],
    [annotate_contract, name_signer],
    [send_copy, void_contract],
)
LEDGER = app(
    "ledger",
    _LEDGER,
    [list_transfers, show_transfer],
    [hold_transfer, redirect_transfer, book],
    [release_transfer],
)
CLINIC = app(
    "clinic",
    _CLINIC,
    [list_patients, open_record],
    [add_finding, plan_visit, prescribe],
    [disclose_record, erase_record],
)
APPS = (DESK, HR, CONTRACTS, LEDGER, CLINIC)
