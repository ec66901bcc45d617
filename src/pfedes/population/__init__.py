"""Who the clients are, and what each holds."""
