"""Programs that run in a container of an image, by its own Python."""
