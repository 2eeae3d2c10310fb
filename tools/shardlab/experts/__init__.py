"""Mixtures of experts: which expert sees a token, how the token gets there, what comes back."""
