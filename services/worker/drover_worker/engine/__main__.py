"""``python -m drover_worker.engine``: runs the engine's guard process; see guard.py."""

import sys

from drover_worker.engine.guard import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
