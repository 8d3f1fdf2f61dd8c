"""synth's solver package."""
