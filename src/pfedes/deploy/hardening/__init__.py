"""What closes FLARE's doors, in each of its processes."""
