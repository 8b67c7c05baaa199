"""The program: `embasis`, and `python -m embasis`."""

from embasis.signals import handle_interrupts
from embasis.streams import standard_streams


def main() -> None:
    """The command line; a Ctrl-C is heard, and closed streams are open, before the imports of a second or two begin."""
    handle_interrupts()
    with standard_streams():
        from embasis.cli import main as commands

        commands()


if __name__ == "__main__":
    main()
