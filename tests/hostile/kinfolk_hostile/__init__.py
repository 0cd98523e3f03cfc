"""The example family with one thing wrong, chosen by name: what the conformance kit must find."""
