"""PROVE. Each check is a child process with a time limit; what it saw is kept."""
