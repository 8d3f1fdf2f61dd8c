"""``python -m synth``: the same as the ``synth`` command."""

import sys

from synth.cli.main import main

sys.exit(main())
