"""Reference integrity manifests, and the XML that they are written in."""
