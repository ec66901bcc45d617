"""Trackers: listeners that write a run's rounds where other tools read them."""
