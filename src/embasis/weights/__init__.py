"""The modules of embasis.weights."""
