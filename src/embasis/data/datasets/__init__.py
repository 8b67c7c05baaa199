"""The modules of embasis.data.datasets."""
