"""Fleets carry the round loop to the clients."""
