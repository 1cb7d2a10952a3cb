"""The shared language: all that two processes, or a process and its disk, must agree on."""
