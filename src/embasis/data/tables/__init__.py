"""The modules of embasis.data.tables."""
