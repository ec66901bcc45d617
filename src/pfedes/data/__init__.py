"""Data sets, their cache, their partition among clients, and batches of them."""
