"""A device's evidence: reports, NVIDIA's roots, reference values, collateral."""
