"""``python -m raymx.submit``: runs on a cluster, through its dashboard.

In Python ``raymx.submit`` is the function of `raymx.jobs.submitting`; so nothing imports this module.
"""

import sys

from raymx.jobs.cli import main

if __name__ == "__main__":
    sys.exit(main())
