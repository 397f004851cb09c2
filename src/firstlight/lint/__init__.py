"""LINT. A user's Dockerfile or compose file and one machine to what will break there. Pure."""
