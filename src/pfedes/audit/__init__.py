"""What leaves the clients of a run, given to attackers who try to learn from it."""
