"""An attestation's own forms: raw, batch, statement, launch file."""
