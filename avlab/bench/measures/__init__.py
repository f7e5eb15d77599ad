"""One module a measure, or a family of measures; each holds `MEASURES`."""
