"""A client's model as files that need no pfedes."""
