"""Worker processes that read images and label maps, so that a bad file costs one row and never the run."""
