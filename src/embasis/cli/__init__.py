"""The command line: `main.py` declares the commands, each is a file of its name, and `console.py` prints."""

from embasis.cli.main import main

__all__ = ["main"]
