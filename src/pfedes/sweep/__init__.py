"""Many runs as one job."""
