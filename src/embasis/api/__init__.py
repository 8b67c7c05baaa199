"""The modules of embasis.api."""
