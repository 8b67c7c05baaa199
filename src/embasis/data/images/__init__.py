"""Image files: scanned, checked, decoded by other processes, and made samples of a problem."""
