"""Topics as tables of Apache Spark: a source and a sink named `ottla`, in Python, without a jar."""
