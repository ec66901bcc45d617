"""A sum of integers of which nobody sees a summand."""
