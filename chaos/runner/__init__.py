"""The clients of a run, and the pen that writes down what became of everything they tried."""
