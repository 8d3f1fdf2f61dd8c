"""What a plan costs: the official model by rounds, and the timeline."""
