"""The commands as functions for scripts and notebooks, which show their progress."""
