"""What scripts and notebooks call: the commands as functions, with progress in sight."""
