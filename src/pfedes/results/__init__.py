"""Reading a run: its metrics, its summary, its clients' models."""
