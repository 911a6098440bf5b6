"""`python -m pybridge` is the `pybridge` command."""

import sys

from .cli import main

sys.exit(main())
