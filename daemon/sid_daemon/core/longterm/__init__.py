"""What goes over many rounds: lessons, milestones, the ladder of a run that finds nothing, the audit."""
