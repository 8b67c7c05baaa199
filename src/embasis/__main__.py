"""The program: `embasis`, and `python -m embasis`."""

from embasis.interrupts import listen


def main() -> None:
    """The command line; a Ctrl-C is heard before the imports of a second or two begin."""
    listen()
    from embasis.cli import main as commands

    commands()


if __name__ == "__main__":
    main()
