"""The program: `embasis`, and `python -m embasis`."""

from embasis.terminal import handle_interrupts, standard_streams


def main() -> None:
    """Handle Ctrl-C and open closed streams, then import and run the command line."""
    handle_interrupts()
    with standard_streams():
        from embasis.cli import main as commands

        commands()


if __name__ == "__main__":
    main()
