"""SPDM reports, and the opaque data in them."""
