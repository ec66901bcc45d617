"""Secure sums of integers: the server learns the sum, but no summand."""
