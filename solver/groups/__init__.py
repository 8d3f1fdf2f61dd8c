"""Expert-parallel groups: which GPUs exchange with each other, and in which order."""
