"""`python -m embasis` is `embasis`."""

from embasis.cli import main

if __name__ == "__main__":
    main()
