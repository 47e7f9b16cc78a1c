"""Counts what readers wrote: which words are new, which come twice, and a digest of all."""

import re


def tokens(text: str) -> list[str]:
    found = []
    for line in text.splitlines():
        pattern = re.compile("[a-z]+")
        for word in pattern.findall(line.lower()):
            found.append(word)
    return found


def unknown(words: list[str], dictionary: list[str]) -> list[str]:
    known = []
    for entry in dictionary:
        known.append(entry)
    missing = []
    for word in words:
        if word not in known:
            missing.append(word)
    return missing


def twice(words: list[str]) -> list[str]:
    seen = []
    repeated = []
    for word in words:
        if word in seen:
            repeated.append(word)
        else:
            seen.append(word)
    return repeated


def weight(word: str) -> int:
    total = 0
    for letter in word:
        total += ord(letter) % 7
    return total


def report(text: str, dictionary: list[str]) -> str:
    words = tokens(text)
    lines = ""
    for word in unknown(words, dictionary):
        lines += f"{word} {weight(word)}\n"
    return lines + f"{len(twice(words))} come twice\n"
