"""Figures and pages that show runs."""
