"""synth's runtime package."""
