"""The face of sid: `sictl`, a thin client of the socket that imports the words alone."""
