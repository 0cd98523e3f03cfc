"""What kernels share that attend to tiles of keys and values in workgroup memory: both products, what becomes of scores
between them, and a loop in which scores are formed one tile ahead.

Scores are formed transposed, S' = K Q' with keys as rows and queries as columns, and so is the output, O' = V' P': the
scores of a lane are the elements of P' that it must hold for the second product.
"""
