"""A processor's evidence: reports of AMD's SEV-SNP and quotes of Intel's TDX, and what they are about."""
