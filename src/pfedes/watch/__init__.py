"""The live page: runs and federations as they go on, read from their directories."""
