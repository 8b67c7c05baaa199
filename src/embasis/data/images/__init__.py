"""Images on disk: found, looked at, read by other processes, and made samples of a problem."""
