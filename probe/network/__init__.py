"""The network between machines: descriptions of it, and joining nodes over it."""
