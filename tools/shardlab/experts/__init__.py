"""Mixtures of experts: the router that chooses experts, the dispatch of tokens, the experts."""
