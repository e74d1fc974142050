"""`python -m broker` is `wherry`."""

import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until a command has its own: no traceback for a Ctrl-C while loading

from broker.cli import main

sys.exit(main())
