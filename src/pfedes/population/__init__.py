"""The clients of a federation, and the data of each."""
