"""Restylers: the labelled side in the unlabelled one's style (types/restyling.py), one file each."""
