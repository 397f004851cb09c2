"""MAY THIS RUN. One action of a person or an agent and the team's policy: allow, or deny and say what is open."""
