"""LINT. A user's own files and one machine to what will break there. Pure."""
