"""The actors: those of a round's roles that ask an agent, and the two that ask nobody."""
