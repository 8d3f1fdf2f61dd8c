"""The commands of the runtime: run and bench."""
