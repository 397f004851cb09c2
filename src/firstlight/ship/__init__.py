"""An image to another machine over ssh: only what is missing there is sent, checked there, loaded and proved."""
