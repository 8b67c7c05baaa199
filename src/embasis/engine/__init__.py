"""The engine: one story (self_train), the end of a round (round), one training loop (train), and what they need."""
