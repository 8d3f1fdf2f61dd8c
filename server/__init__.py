"""synth's server package."""
