"""Closes the doors of FLARE's processes: all requests that a federation does not need."""
