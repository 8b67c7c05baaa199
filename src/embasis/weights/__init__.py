"""Weights of pretrained networks: read as safetensors, or imported from PyTorch's files by a process in a sandbox."""
