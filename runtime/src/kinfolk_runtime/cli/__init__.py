"""The runtime's verbs of the command line: emit, resources, verify, doctor."""
