"""What the start-up files of shells say, and structured edits of them. Pure."""
