"""The engine: one story (rounds), one training loop (train), and what they need to see and to judge."""
