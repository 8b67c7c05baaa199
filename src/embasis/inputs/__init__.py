"""The modules of embasis.inputs."""
