"""Federations across organisations, on NVIDIA FLARE."""
