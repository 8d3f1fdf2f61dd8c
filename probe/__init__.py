"""synth's probe package."""
