"""Pictures with label maps: which files belong together, what they mean, and what a network sees of them."""
