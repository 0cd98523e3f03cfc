"""The one version that all distributions of the project carry."""

__version__ = "0.1.0"
