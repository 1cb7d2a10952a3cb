"""What Spark says, in one sentence: its texts are long, and what matters stands somewhere in them.

Not here: our own errors, which are a sentence already.
"""

from __future__ import annotations


def first_sentence(text: str) -> str:
    """Return what Spark says first, without its class in brackets and the plan below."""
    line = next((line for line in text.splitlines() if line.strip()), "Spark refuses it.")
    if line.startswith("[") and "]" in line:
        line = line.split("]", 1)[1].strip()
    line = line.split(" SQLSTATE:")[0].rstrip()
    return line if line.endswith(".") else f"{line}."


def cause_of(text: str) -> str:
    """Return the sentence of ours in a long text of Spark's, else the first of Spark's own."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        name, _, sentence = line.partition(": ")
        if name.startswith("ottla.") and name.endswith("Error") and sentence:
            return sentence
    return first_sentence(text)
