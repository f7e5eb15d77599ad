"""`python -m avlab` is the same as `avlab`."""

from avlab.cli import main

main()
