"""What an attestation is bound to: its form, its batch, the exchange that the caller holds."""
