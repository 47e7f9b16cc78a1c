"""One module a verb of `sictl`, imported when that verb is typed."""
