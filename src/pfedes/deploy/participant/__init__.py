"""A participant's side of a federation."""
