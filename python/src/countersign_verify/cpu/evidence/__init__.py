"""A processor's evidence as bytes: reports, quotes, event logs, a virtual TPM's quote."""
