"""``python -m recension.cli`` is the command ``recension``."""

import sys

from recension.cli import main

sys.exit(main())
