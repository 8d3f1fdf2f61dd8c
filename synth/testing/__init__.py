"""Domain assertions and hypothesis strategies for users' tests and ours."""
