"""Let torchvision be imported where its compiled library does not load: CUDA-built torchvision beside a CPU torch.

Importing torchvision then fails with "operator torchvision::nms does not exist". Declaring two operators before it
looks for them is enough; calling them still raises an error. The .pth file beside this module runs `install` when
Python starts, so that spawned workers and sub-processes have it too. Nothing is imported until torchvision itself is.
"""

import sys

SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
kept = []  # an operator lives as long as its Library does


class Finder:
    """Finds no module; acts when torchvision, its torch already imported, is about to load its compiled library."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        """Declare the operators, once, unless the library loads."""
        if name == "torchvision.extension":
            sys.meta_path.remove(cls)
            if not any(loads(file) for folder in path or () for file in libraries(folder)):
                declare()


def libraries(folder):
    """torchvision's compiled operators: _C.so, _C.cpython-311-x86_64-linux-gnu.so, _C.pyd."""
    from pathlib import Path

    return [str(file) for file in Path(folder).glob("_C.*") if file.suffix in (".so", ".pyd")]


def loads(file):
    """Whether this torch can load that library."""
    import torch

    try:
        torch.ops.load_library(file)
    except (ImportError, OSError):
        return False
    return True


def declare():
    """Two schemas without an implementation."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    library.define("nms" + SCHEMA)
    library.define("qnms" + SCHEMA)
    kept.append(library)


def install():
    """Put the finder first; done by the .pth file."""
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)
