"""What a method and a client are made of."""
