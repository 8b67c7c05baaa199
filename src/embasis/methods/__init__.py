"""Self-training methods: labellers, selectors, losses, and the recipes that join them."""

from embasis.methods.registry import METHODS

__all__ = ["METHODS"]
