"""Drafters: one file each, found by name."""
