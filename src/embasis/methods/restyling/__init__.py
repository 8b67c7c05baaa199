"""Restylers: the labelled side in the unlabelled one's dress (types/restyling.py), one file each."""
