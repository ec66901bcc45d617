"""Machines behind a Dask scheduler: joining them, and sending them work that cannot get lost."""
