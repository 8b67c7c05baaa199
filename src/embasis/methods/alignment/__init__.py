"""Alignment methods: both sides are drawn together while the network is trained (types/alignment.py), one file each."""
