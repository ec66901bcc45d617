"""The paper's tables, figures and theory, as experiments."""
