"""`python -m svc_notebook`: the same as the command `svc-notebook`."""

import sys

from svc_notebook.cli import main

if __name__ == "__main__":
    sys.exit(main())
