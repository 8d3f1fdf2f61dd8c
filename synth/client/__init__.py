"""Client of the synth server, with a content-addressed cache."""
