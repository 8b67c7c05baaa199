"""From a config to a finished run: build the objects, walk the rounds, keep the run folder; compare methods."""
