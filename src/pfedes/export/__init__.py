"""A client's model as files that work without pfedes."""
