"""Foreign formats, one file each, both ways where it makes sense."""
