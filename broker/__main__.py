"""`python -m broker` is `wherry`."""

import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until a command has its own: no traceback for a Ctrl-C while loading
    # kio imports hypothesis wherever it is installed, which takes longer than kio itself; a broker makes up no data.
    sys.modules["hypothesis"] = None  # type: ignore[assignment]

from broker.cli import main

sys.exit(main())
