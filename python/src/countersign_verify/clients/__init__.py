"""httpx clients that let no answer end unproven."""
