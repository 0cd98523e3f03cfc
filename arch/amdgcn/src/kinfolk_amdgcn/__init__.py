"""What the AMD arches share: target ids, their ops, LLVM's words for the portable ops, and reading code objects."""
