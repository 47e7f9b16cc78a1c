"""What is checked of a candidate before it is measured: seal, scope, detectors, and whether it is new."""
