"""`python -m avlab` is the same as `avlab`."""

from avlab.commands.cli import main

main()
