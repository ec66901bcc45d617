"""Lemma 1 and Theorem 1 of the paper against what is measured on real runs.

`docs/theory.md` says what is measured, and which steps of the proof do not follow as written.
"""
