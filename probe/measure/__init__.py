"""Timing what is only claimed: latency and rate of every route between GPUs, alone and all at once."""
