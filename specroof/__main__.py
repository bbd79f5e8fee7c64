"""`python -m specroof`."""

from __future__ import annotations

import sys

from specroof.cli import main

sys.exit(main())
