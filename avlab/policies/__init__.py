"""Policies and the grammar that names them. numpy only."""
