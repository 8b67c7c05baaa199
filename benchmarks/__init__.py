"""Figures of the project, each with the command that makes it."""
