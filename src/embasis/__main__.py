"""The program: `embasis`, and `python -m embasis`."""

import os

from embasis.terminal import end_at_once, handle_interrupts, standard_streams


def main() -> None:
    """Handle Ctrl-C and open closed streams, then import and run the command line."""
    handle_interrupts()
    try:
        with standard_streams():
            from embasis.cli import main as commands

            commands()
    except SystemExit as end:
        if os.environ.get("WORLD_SIZE", "1") == "1":
            raise
        end_at_once(end.code)


if __name__ == "__main__":
    main()
