"""A folder that a worker's interpreters look for modules in first, so that ``sitecustomize`` in it is found."""

import os

FOLDER = os.path.dirname(os.path.abspath(__file__))
