"""Runs and clients' states on disk."""
