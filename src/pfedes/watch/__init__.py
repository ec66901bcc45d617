"""The live page: runs and federations while they continue, read from their directories."""
