"""One round, from the research to the tournament."""
