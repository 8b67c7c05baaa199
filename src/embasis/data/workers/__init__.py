"""The modules of embasis.data.workers."""
