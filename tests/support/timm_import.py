"""Importing this imports timm and torchvision as embasis does: for processes that are to know them before they fork."""

from embasis.networks.pretrained import import_timm

import_timm()
