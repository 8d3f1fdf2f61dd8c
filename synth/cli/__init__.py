"""The ``synth`` command: each subcommand is a module that is imported only when it is used."""
