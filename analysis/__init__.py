"""Reads what runs have saved: tables, plots, reports. Never starts a model or a world."""
