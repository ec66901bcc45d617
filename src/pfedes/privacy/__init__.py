"""Differential privacy at the level of clients: clipping, noise, and what they add up to."""
