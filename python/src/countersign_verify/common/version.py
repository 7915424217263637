"""The version of this package: service and verifiers have one."""

__version__ = "0.2.0"
