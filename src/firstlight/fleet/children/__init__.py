"""Programs of their own: they run on a host, in front of ssh, and inside ansible-playbook."""
