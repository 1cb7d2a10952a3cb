"""One process: the command line, configuration and, later, listeners and wiring."""
