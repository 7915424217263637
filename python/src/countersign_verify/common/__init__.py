"""What every part of the verifier shares: checks, bounded JSON, times, a cache."""
