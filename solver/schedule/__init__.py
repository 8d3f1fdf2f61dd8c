"""Strategies: ways to turn a demand on a topology into rounds of transfers."""
