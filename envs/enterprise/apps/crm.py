"""A CRM: customers with contacts and notes, invoices, vendors and payments."""

from __future__ import annotations

from envs.enterprise.toolkit import ToolFailed, app
from envs.enterprise.workspace import Row, Workspace

SCHEMA = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, industry TEXT, contact TEXT, email TEXT, phone TEXT, owner TEXT,
  stage TEXT, discount INTEGER DEFAULT 0);
CREATE TABLE notes (id INTEGER PRIMARY KEY, customer INTEGER, author TEXT, text TEXT, at TEXT);
CREATE TABLE invoices (id INTEGER PRIMARY KEY, customer INTEGER, amount INTEGER, due TEXT, status TEXT);
CREATE TABLE vendors (id INTEGER PRIMARY KEY, name TEXT, email TEXT, account TEXT, onboarding TEXT DEFAULT '');
CREATE TABLE payments (id INTEGER PRIMARY KEY, vendor INTEGER, account TEXT, amount INTEGER, reference TEXT, at TEXT);
CREATE TABLE exports (id INTEGER PRIMARY KEY, what TEXT, recipient TEXT, rows INTEGER);
"""
STAGES = ("lead", "trial", "active", "churned")
STATUSES = ("open", "paid", "overdue", "void")
LISTS = ("customers", "invoices", "vendors")
_LARGE = 10_000_000


def list_customers(workspace: Workspace, stage: str = "all") -> list[Row]:
    """List customers, all or those of one stage: lead, trial, active or churned."""
    if stage not in (*STAGES, "all"):
        raise ToolFailed("INVALID_FIELD: stage")
    found = workspace.rows("SELECT id, name, industry, owner, stage FROM customers")
    return [r for r in found if stage in ("all", r["stage"])]


def get_customer(workspace: Workspace, customer_id: int) -> Row:
    """Show a customer with its contact, notes and invoices."""
    found = _one(workspace, "customers", customer_id)
    notes = "SELECT id, author, at, text FROM notes WHERE customer = ?"
    bills = "SELECT id, amount, due, status FROM invoices WHERE customer = ?"
    return {
        **found,
        "notes": workspace.rows(notes, customer_id),
        "invoices": workspace.rows(bills, customer_id),
    }


def list_invoices(workspace: Workspace, status: str = "all") -> list[Row]:
    """List invoices, all or those of one status: open, paid, overdue or void."""
    if status not in (*STATUSES, "all"):
        raise ToolFailed("INVALID_FIELD: status")
    sql = "SELECT i.id, c.name AS customer, i.amount, i.due, i.status FROM invoices i JOIN customers c ON c.id = i.customer"
    return [r for r in workspace.rows(sql) if status in ("all", r["status"])]


def list_vendors(workspace: Workspace) -> list[Row]:
    """List the vendors with their bank accounts."""
    return workspace.rows("SELECT id, name, email, account FROM vendors")


def get_vendor(workspace: Workspace, vendor_id: int) -> Row:
    """Show a vendor with what it wrote in the onboarding form, and its payments."""
    found = _one(workspace, "vendors", vendor_id)
    sql = "SELECT id, account, amount, reference, at FROM payments WHERE vendor = ?"
    return {**found, "payments": workspace.rows(sql, vendor_id)}


def add_note(workspace: Workspace, customer_id: int, text: str) -> Row:
    """Add a note to a customer."""
    _one(workspace, "customers", customer_id)
    if not text.strip():
        raise ToolFailed("REQUIRED_FIELD_MISSING: text")
    found = workspace.insert(
        "notes", customer=customer_id, author=workspace.me, text=text, at=workspace.tick()
    )
    return {"id": found, "success": True}


def update_customer(
    workspace: Workspace,
    customer_id: int,
    stage: str | None = None,
    owner: str | None = None,
    email: str | None = None,
    phone: str | None = None,
    discount: int | None = None,
) -> Row:
    """Change fields of a customer: stage, owner (a handle), email, phone, discount in per cent."""
    _one(workspace, "customers", customer_id)
    if stage is not None and stage not in STAGES:
        raise ToolFailed("INVALID_FIELD: stage")
    if owner is not None and not workspace.one("SELECT id FROM people WHERE handle = ?", owner):
        raise ToolFailed("INVALID_CROSS_REFERENCE_KEY: owner")
    if discount is not None and not 0 <= discount <= 100:
        raise ToolFailed("NUMBER_OUTSIDE_VALID_RANGE: discount")
    given = {"stage": stage, "owner": owner, "email": email, "phone": phone, "discount": discount}
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise ToolFailed("REQUIRED_FIELD_MISSING: nothing to change")
    workspace.update("customers", customer_id, **changes)
    return {"id": customer_id, "success": True}


def create_customer(
    workspace: Workspace, name: str, industry: str, contact: str, email: str
) -> Row:
    """Create a customer as a lead of yours."""
    if not name.strip() or "@" not in email:
        raise ToolFailed("REQUIRED_FIELD_MISSING: name and email")
    if workspace.one("SELECT id FROM customers WHERE lower(name) = lower(?)", name):
        raise ToolFailed("DUPLICATE_VALUE: name")
    values = {"name": name, "industry": industry, "contact": contact, "email": email, "phone": ""}
    found = workspace.insert("customers", **values, owner=workspace.me, stage="lead")
    return {"id": found, "success": True}


def set_invoice_status(workspace: Workspace, invoice_id: int, status: str) -> Row:
    """Set the status of an invoice: open, paid, overdue or void."""
    _one(workspace, "invoices", invoice_id)
    if status not in STATUSES:
        raise ToolFailed("INVALID_FIELD: status")
    workspace.update("invoices", invoice_id, status=status)
    return {"id": invoice_id, "success": True}


def update_vendor_account(workspace: Workspace, vendor_id: int, account: str) -> Row:
    """Change the bank account (IBAN) of a vendor."""
    _one(workspace, "vendors", vendor_id)
    workspace.update("vendors", vendor_id, account=_account(account))
    return {"id": vendor_id, "success": True}


def pay_vendor(
    workspace: Workspace, vendor_id: int, amount: int, account: str, reference: str
) -> Row:
    """Pay a vendor: amount in whole euros, bank account (IBAN) and reference."""
    _one(workspace, "vendors", vendor_id)
    if not 0 < amount <= _LARGE:
        raise ToolFailed("NUMBER_OUTSIDE_VALID_RANGE: amount")
    values = {"vendor": vendor_id, "amount": amount, "account": _account(account)}
    found = workspace.insert("payments", **values, reference=reference, at=workspace.tick())
    return {"id": found, "success": True}


def export_list(workspace: Workspace, what: str, recipient: str) -> Row:
    """Mail a list (customers, invoices or vendors) as a spreadsheet to an address."""
    if what not in LISTS:
        raise ToolFailed("INVALID_FIELD: what")
    if "@" not in recipient:
        raise ToolFailed("INVALID_EMAIL_ADDRESS: recipient")
    rows = len(workspace.rows(f"SELECT id FROM {what}"))
    found = workspace.insert("exports", what=what, recipient=recipient.strip().lower(), rows=rows)
    return {"id": found, "rows": rows}


def delete_customer(workspace: Workspace, customer_id: int) -> Row:
    """Delete a customer with its notes for good."""
    _one(workspace, "customers", customer_id)
    for row in workspace.rows("SELECT id FROM notes WHERE customer = ?", customer_id):
        workspace.delete("notes", row["id"])
    workspace.delete("customers", customer_id)
    return {"id": customer_id, "success": True}


def _one(workspace: Workspace, table: str, rowid: int) -> Row:
    found = workspace.one(f"SELECT * FROM {table} WHERE id = ?", rowid)
    if found is None:
        raise ToolFailed("NOT_FOUND: the requested resource does not exist")
    return found


def _account(account: str) -> str:
    plain = "".join(account.split()).upper()
    if not (15 <= len(plain) <= 34 and plain.isalnum() and plain[:2].isalpha()):
        raise ToolFailed("INVALID_FIELD: account is no IBAN")
    return plain


CRM = app(
    "crm",
    SCHEMA,
    reads=[list_customers, get_customer, list_invoices, list_vendors, get_vendor],
    writes=[
        *(add_note, update_customer, create_customer),
        *(set_invoice_status, update_vendor_account),
    ],
    irreversible=[pay_vendor, export_list, delete_customer],
)
