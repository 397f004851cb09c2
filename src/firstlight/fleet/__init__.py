"""The same answers for other machines: hosts reached over ssh, compared with each other."""
