"""Rows in, plotly figure out: pure functions, one module a page. A figure says nothing about light or dark."""
