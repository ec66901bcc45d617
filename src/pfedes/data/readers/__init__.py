"""Files of images and numbers in the formats that people have.

A new format is a file here, and an entry in `pfedes.data.sources`.
"""
