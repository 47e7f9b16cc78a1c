"""Prints how many lines of Python one report takes, the same on every run; exits with 1 if the report is wrong."""

import hashlib
import sys

import words

RIGHT = "96d9e0fef9c8"


def corpus():
    state, lines = 7, []
    for _ in range(60):
        line = []
        for _ in range(12):
            state = (state * 1103515245 + 12345) % 2**31
            line.append("".join(chr(97 + (state >> shift) % 9) for shift in (3, 9, 14)))
        lines.append(" ".join(line))
    return "\n".join(lines), ["".join(chr(97 + (n * k) % 9) for k in (1, 2, 3)) for n in range(200)]


def main():
    text, dictionary = corpus()
    count = 0

    def trace(frame, event, _argument):
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    report = words.report(text, dictionary)
    sys.settrace(None)
    if hashlib.sha256(report.encode()).hexdigest()[:12] != RIGHT:
        sys.exit("the report is wrong")
    print(count)


main()
