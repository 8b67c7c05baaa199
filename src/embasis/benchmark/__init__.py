"""The modules of embasis.benchmark."""
