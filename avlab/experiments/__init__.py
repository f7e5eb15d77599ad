"""Experiments: the plan of an A/B, its statistics, its verdict in words, the frontier. No torch."""
