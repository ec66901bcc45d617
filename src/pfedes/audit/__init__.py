"""Attacks on what the clients of a run send."""
