"""One module per source of facts; each gives :class:`probe.facts.Facts` and knows nothing of the others."""
